package fairqueue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
)

// siteSize is the number of hosts that boot at the same time when a whole site is powered on.
const siteSize = 3500

// maxInFlight is the number of requests that each Cluster can have in flight.
const maxInFlight = 10

func TestFairQueue(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // the machine can be busy
	RunSpecs(t, "Fair queue")
}

// newRequest returns the i-th request of a pool of a Cluster, which is its namespace, or namespace/name. flowOf derives
// the flow from the request.
func newRequest(cluster, pool string, i int) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: cluster, Name: fmt.Sprintf("%s/%d", pool, i)}}
}

func flowOf(r ctrl.Request) fairqueue.Flow {
	pool, _, _ := strings.Cut(r.Name, "/")
	namespace, name, _ := strings.Cut(r.Namespace, "/")
	return fairqueue.Flow{Cluster: client.ObjectKey{Namespace: namespace, Name: name}, Pool: pool}
}

// newQueue returns the queue of a controller.
func newQueue(workers int) priorityqueue.PriorityQueue[ctrl.Request] {
	options := fairqueue.Options(controller.Options{MaxConcurrentReconciles: workers}, flowOf)
	q := options.NewQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Millisecond, time.Second))
	DeferCleanup(q.ShutDown)
	return q.(priorityqueue.PriorityQueue[ctrl.Request])
}

// process gets n requests, one after the other, and returns them.
func process(q priorityqueue.PriorityQueue[ctrl.Request], n int) (processed []ctrl.Request) {
	GinkgoHelper()
	for range n {
		r, _, shutdown := q.GetWithPriority()
		Expect(shutdown).To(BeFalse())
		q.Done(r)
		processed = append(processed, r)
	}
	return processed
}

// countOf returns how many of the requests are those of a pool.
func countOf(requests []ctrl.Request, cluster, pool string) (n int) {
	for _, r := range requests {
		if r.Namespace == cluster && flowOf(r).Pool == pool {
			n++
		}
	}
	return n
}

var _ = Describe("A controller with a fair queue", func() {
	It("reconciles the hosts of a Cluster while thousands of hosts of other Clusters wait for API servers that do not respond", func(ctx SpecContext) {
		const slowClusters = 3
		var reconciled, blocked, maxBlocked atomic.Int64
		run(ctx, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			if r.Namespace == "fast" {
				reconciled.Add(1)
				return ctrl.Result{}, nil
			}
			maxBlocked.Store(max(maxBlocked.Load(), blocked.Add(1)))
			<-ctx.Done()
			return ctrl.Result{}, nil
		}), func(add func(ctrl.Request)) {
			for i := range siteSize {
				add(newRequest(fmt.Sprintf("slow-%d", i%slowClusters), "infra", i))
			}
			for i := range 100 {
				add(newRequest("fast", "infra", i))
			}
		})
		Eventually(reconciled.Load).Should(BeEquivalentTo(100))
		Eventually(blocked.Load).Should(BeEquivalentTo(slowClusters*maxInFlight), "each Cluster has its maximum in flight")
		Consistently(maxBlocked.Load, 200*time.Millisecond).Should(BeEquivalentTo(slowClusters * maxInFlight))
	})

	DescribeTable("reconciles the hosts of all other namespaces at once while no Cluster responds of", func(ctx SpecContext, deadNamespaces, maxBlocked int) {
		const deadClusters, tenants = 4000, 20
		var reconciled, blocked atomic.Int64
		var add func(ctrl.Request)
		run(ctx, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			if !strings.HasPrefix(r.Namespace, "dead-") {
				reconciled.Add(1)
				return ctrl.Result{}, nil
			}
			blocked.Add(1)
			<-ctx.Done()
			return ctrl.Result{}, nil
		}), func(adds func(ctrl.Request)) {
			add = adds
			for i := range deadClusters {
				add(newRequest(fmt.Sprintf("dead-%d/%d", i%deadNamespaces, i), "infra", 0))
			}
		})
		Eventually(blocked.Load).Should(BeNumerically(">=", maxBlocked*9/10))
		for i := range tenants {
			add(newRequest(fmt.Sprintf("tenant-%d/edge", i), "infra", 0))
		}
		Eventually(reconciled.Load, time.Second).Should(BeEquivalentTo(tenants))
		Expect(blocked.Load()).To(BeNumerically("<=", maxBlocked))
	},
		Entry("one namespace, which has half of the workers", 1, maxInFlight*fairqueue.MaxBusyClusters),
		Entry("many namespaces, which leave one worker idle at least", 40, 2*maxInFlight*fairqueue.MaxBusyClusters-1),
	)

	It("reconciles each of 3,500 hosts once, and no host with two workers at a time", func(ctx SpecContext) {
		var mu sync.Mutex
		concurrent := false
		inFlight, times := map[ctrl.Request]bool{}, map[ctrl.Request]int{}
		run(ctx, reconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
			mu.Lock()
			concurrent = concurrent || inFlight[r]
			inFlight[r] = true
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			inFlight[r] = false
			times[r]++
			return ctrl.Result{}, nil
		}), func(add func(ctrl.Request)) {
			for i := range siteSize {
				add(newRequest("edge", fmt.Sprintf("pool-%d", i%7), i))
			}
		})
		Eventually(func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(times)
		}).Should(Equal(siteSize))
		mu.Lock()
		defer mu.Unlock()
		Expect(times).To(HaveEach(1))
		Expect(concurrent).To(BeFalse())
	})
})

// run runs a real controller with the requests that addRequests adds, until the spec ends.
func run(ctx context.Context, reconciler reconcile.Reconciler, addRequests func(add func(ctrl.Request))) {
	GinkgoHelper()
	c, err := controller.NewUnmanaged("fairqueue", fairqueue.Options(controller.Options{
		Reconciler: reconciler, MaxConcurrentReconciles: maxInFlight, SkipNameValidation: ptr.To(true),
	}, flowOf))
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		addRequests(q.Add)
		return nil
	}))).To(Succeed())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error)
	go func() { stopped <- c.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Expect(<-stopped).To(Succeed())
	})
}

var _ = Describe("Queued requests", func() {
	It("are tried again every minute at least, however often they failed", func() {
		options := fairqueue.Options(controller.Options{}, fairqueue.FlowOfCluster)
		for range 100 {
			Expect(options.RateLimiter.When(ctrl.Request{})).To(BeNumerically("<=", time.Minute))
		}
	})

	It("of a small pool are scheduled round robin with the earlier requests of a large pool", func() {
		q := newQueue(maxInFlight)
		for i := range 3400 {
			q.Add(newRequest("edge", "large", i))
		}
		for i := range 100 {
			q.Add(newRequest("edge", "small", i))
		}
		Expect(countOf(process(q, 200), "edge", "small")).To(Equal(100))
		Expect(process(q, 3300)).To(HaveLen(3300))
		Expect(q.Len()).To(BeZero())
	})

	It("of a Cluster are scheduled round robin with those of a Cluster whose objects change all the time", func() {
		q := newQueue(maxInFlight)
		for i := range siteSize {
			q.Add(newRequest("hot", "infra", i))
		}
		for i := range 100 {
			q.Add(newRequest("calm", "infra", i))
		}
		calmRequests := 0
		for range 201 {
			r, _, _ := q.GetWithPriority()
			if r.Namespace == "calm" {
				calmRequests++
			} else {
				q.Add(r)
			}
			q.Done(r)
		}
		Expect(calmRequests).To(Equal(100))
		Expect(q.Len()).To(Equal(siteSize), "however often they were added")
	})

	It("of a namespace with one Cluster are scheduled round robin with those of a namespace with a thousand", func() {
		q := newQueue(maxInFlight)
		for i := range 1000 {
			q.Add(newRequest(fmt.Sprintf("many/%d", i), "infra", 0))
		}
		for i := range 100 {
			q.Add(newRequest("one/edge", "infra", i))
		}
		Expect(countOf(process(q, 200), "one/edge", "infra")).To(Equal(100))
		Expect(process(q, 900)).To(HaveLen(900))
		Expect(q.Len()).To(BeZero())
	})

	It("of all Clusters of a namespace are scheduled round robin", func() {
		q := newQueue(maxInFlight)
		for i := range siteSize {
			q.Add(newRequest("metal/large", "infra", i))
		}
		for i := range 100 {
			q.Add(newRequest("metal/small", "infra", i))
		}
		Expect(countOf(process(q, 200), "metal/small", "infra")).To(Equal(100))
	})

	It("are queued once, however often they are added", func() {
		q := newQueue(maxInFlight)
		for range 20 {
			for i := range siteSize {
				q.Add(newRequest("edge", "infra", i))
			}
		}
		Expect(q.Len()).To(Equal(siteSize))
		process(q, siteSize)
		Expect(q.Len()).To(BeZero())
	})

	It("that are added while in flight are queued once, after they are no longer in flight", func() {
		q := newQueue(maxInFlight)
		q.Add(newRequest("edge", "infra", 0))
		r, _, _ := q.GetWithPriority()
		q.Add(r)
		q.Add(r)
		Expect(q.Len()).To(BeZero())
		q.Done(r)
		Expect(process(q, 1)).To(Equal([]ctrl.Request{r}))
		Expect(q.Len()).To(BeZero())
	})

	It("of a Cluster with the maximum in flight wait until one of these is done", func() {
		q := newQueue(1)
		q.Add(newRequest("edge", "infra", 0))
		q.Add(newRequest("edge", "infra", 1))
		first, _, _ := q.GetWithPriority()
		second := make(chan ctrl.Request, 1)
		go func() {
			r, _, _ := q.GetWithPriority()
			second <- r
		}()
		Consistently(second, 100*time.Millisecond).ShouldNot(Receive())
		q.Done(first)
		Eventually(second).Should(Receive(Equal(newRequest("edge", "infra", 1))))
	})

	It("with a low priority are scheduled after the others of their pool, unless they are added again with the default priority", func() {
		q := newQueue(maxInFlight)
		low := priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}
		for i := range 4 {
			q.AddWithOpts(low, newRequest("edge", "infra", i))
		}
		q.AddWithOpts(priorityqueue.AddOpts{}, newRequest("edge", "infra", 9))
		q.AddWithOpts(priorityqueue.AddOpts{}, newRequest("edge", "infra", 2))
		Expect(process(q, 5)).To(Equal([]ctrl.Request{
			newRequest("edge", "infra", 9), newRequest("edge", "infra", 2), newRequest("edge", "infra", 0), newRequest("edge", "infra", 1), newRequest("edge", "infra", 3)}))
		Expect(q.Len()).To(BeZero())
	})

	It("of an event that concerns all hosts of a pool are scheduled after the others of the pool", func(ctx SpecContext) {
		q, object := newQueue(1), &corev1.ConfigMap{}
		all := fairqueue.EnqueueLow(func(_ context.Context, o client.Object) []ctrl.Request {
			Expect(o).To(BeIdenticalTo(object))
			return []ctrl.Request{newRequest("edge", "infra", 0), newRequest("edge", "infra", 1)}
		})
		for _, send := range []func(){
			func() { all.Create(ctx, event.CreateEvent{Object: object}, q) },
			func() { all.Update(ctx, event.UpdateEvent{ObjectOld: object, ObjectNew: object}, q) },
			func() { all.Delete(ctx, event.DeleteEvent{Object: object}, q) },
			func() { all.Generic(ctx, event.GenericEvent{Object: object}, q) },
		} {
			send()
			q.Add(newRequest("edge", "infra", 2))
			Expect(process(q, 3)).To(Equal([]ctrl.Request{newRequest("edge", "infra", 2), newRequest("edge", "infra", 0), newRequest("edge", "infra", 1)}))
		}
	})

	It("with a delay or a rate limit are scheduled after it", func() {
		q := newQueue(maxInFlight)
		q.AddWithOpts(priorityqueue.AddOpts{After: time.Second}, newRequest("edge", "infra", 0))
		q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, newRequest("edge", "infra", 1))
		Expect(process(q, 2)).To(Equal([]ctrl.Request{newRequest("edge", "infra", 1), newRequest("edge", "infra", 0)}))
	})

	It("are dropped when the controller stops", func() {
		q := newQueue(maxInFlight)
		q.Add(newRequest("edge", "infra", 0))
		q.ShutDown()
		_, _, shutdown := q.GetWithPriority()
		Expect(shutdown).To(BeTrue())
	})
})
