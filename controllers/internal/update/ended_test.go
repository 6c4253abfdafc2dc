package update

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

var _ = Describe("The end of an update", func() {
	It("is counted, and not what is wrong with a host at other times", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		counted := func() []float64 {
			of := func(outcome string) float64 {
				return scrape.Sum(metrics.Registry, "poolboot_updates_total", map[string]string{"cluster": clusterKey.String(), "outcome": outcome})
			}
			return []float64{of("Started"), of("Done"), of("Degraded")}
		}
		before := counted()
		for _, drift := range []string{"/etc/chrony.conf: Content", ""} {
			w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.DriftAnnotation] = drift })
			w.settle(ctx)
		}
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.eventsOf(bootstrapv1.UpdateDegradedReason)).To(HaveLen(1))
		Expect(counted()).To(Equal(before))
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-3"), "")
		w.settle(ctx)
		Expect(counted()).To(Equal([]float64{before[0] + 2, before[1] + 1, before[2] + 1}))
	})
})
