package fairqueue_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
)

// workqueueMetrics returns the workqueue metrics of a controller by name, as the manager serves them. The value of a
// histogram is its number of samples.
func workqueueMetrics(controller string) map[string]float64 {
	GinkgoHelper()
	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetName() == "name" && label.GetValue() == controller {
					got[family.GetName()] += valueOf(metric)
				}
			}
		}
	}
	return got
}

func valueOf(metric *dto.Metric) float64 {
	return metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
}

var _ = Describe("The workqueue metrics of a controller with a fair queue", func() {
	It("count queued, added and retried requests, and measure how long requests are queued and in flight", func() {
		const name = "metered"
		options := fairqueue.Options(controller.Options{MaxConcurrentReconciles: 1}, flowOf)
		q := options.NewQueue(name, workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Millisecond, time.Second)).(priorityqueue.PriorityQueue[ctrl.Request])
		DeferCleanup(q.ShutDown)
		first, second, third := newRequest("edge", "infra", 0), newRequest("edge", "infra", 1), newRequest("edge", "infra", 2)
		Expect(workqueueMetrics(name)).To(HaveKeyWithValue("workqueue_depth", 0.0))

		q.Add(first)
		q.Add(second)
		q.Add(second) // is queued already
		q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, third)
		Expect(workqueueMetrics(name)).To(And(HaveKeyWithValue("workqueue_depth", 3.0), HaveKeyWithValue("workqueue_adds_total", 3.0)))

		taken, _, _ := q.GetWithPriority()
		Expect(taken).To(Equal(first))
		Expect(workqueueMetrics(name)).To(And(
			HaveKeyWithValue("workqueue_depth", 2.0),
			HaveKeyWithValue("workqueue_queue_duration_seconds", 1.0),
			HaveKeyWithValue("workqueue_work_duration_seconds", 0.0)))
		Eventually(func() map[string]float64 { return workqueueMetrics(name) }).Should(And(
			HaveKeyWithValue("workqueue_unfinished_work_seconds", BeNumerically(">", 0)),
			HaveKeyWithValue("workqueue_longest_running_processor_seconds", BeNumerically(">", 0))))

		q.Add(first) // again, while it is in flight
		Expect(workqueueMetrics(name)).To(And(HaveKeyWithValue("workqueue_depth", 3.0), HaveKeyWithValue("workqueue_adds_total", 4.0)))
		q.Done(first)
		Expect(workqueueMetrics(name)).To(HaveKeyWithValue("workqueue_work_duration_seconds", 1.0))

		q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, newRequest("edge", "infra", 3))
		Expect(workqueueMetrics(name)).To(HaveKeyWithValue("workqueue_retries_total", 1.0))
		Expect(process(q, 4)).To(ConsistOf(second, first, third, newRequest("edge", "infra", 3)))
		Expect(workqueueMetrics(name)).To(And(
			HaveKeyWithValue("workqueue_depth", 0.0),
			HaveKeyWithValue("workqueue_adds_total", 5.0),
			HaveKeyWithValue("workqueue_queue_duration_seconds", 5.0),
			HaveKeyWithValue("workqueue_work_duration_seconds", 5.0)))
	})
})
