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
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
)

// site is how many hosts wait at once when a whole site is switched on.
const site = 3500

// each is what every Cluster may have under way at once.
const each = 10

func TestTurns(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // a machine may be busy
	RunSpecs(t, "Turns")
}

// of is the i-th request of a Cluster and a pool, which placeOf reads from it.
func of(cluster, pool string, i int) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: cluster, Name: fmt.Sprintf("%s/%d", pool, i)}}
}

func placeOf(r ctrl.Request) fairqueue.Place {
	pool, _, _ := strings.Cut(r.Name, "/")
	return fairqueue.Place{Cluster: client.ObjectKey{Name: r.Namespace}, Pool: pool}
}

// newQueue is what a controller gets.
func newQueue(workers int) priorityqueue.PriorityQueue[ctrl.Request] {
	options := fairqueue.Options(controller.Options{MaxConcurrentReconciles: workers}, placeOf)
	q := options.NewQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Millisecond, time.Second))
	DeferCleanup(q.ShutDown)
	return q.(priorityqueue.PriorityQueue[ctrl.Request])
}

// work has one worker do what there is, n times, and returns what it did.
func work(q priorityqueue.PriorityQueue[ctrl.Request], n int) (done []ctrl.Request) {
	GinkgoHelper()
	for range n {
		r, _, shutdown := q.GetWithPriority()
		Expect(shutdown).To(BeFalse())
		q.Done(r)
		done = append(done, r)
	}
	return done
}

// count is how many requests are of a Cluster and a pool.
func count(requests []ctrl.Request, cluster, pool string) (n int) {
	for _, r := range requests {
		if r.Namespace == cluster && placeOf(r).Pool == pool {
			n++
		}
	}
	return n
}

var _ = Describe("A controller whose Clusters take turns", func() {
	It("goes on with the hosts of a Cluster while thousands of another wait for an API server that does not answer", func(ctx SpecContext) {
		const silent = 3
		var answered, stuck, most atomic.Int64
		run(ctx, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			if r.Namespace == "quick" {
				answered.Add(1)
				return ctrl.Result{}, nil
			}
			most.Store(max(most.Load(), stuck.Add(1)))
			<-ctx.Done()
			return ctrl.Result{}, nil
		}), func(add func(ctrl.Request)) {
			for i := range site {
				add(of(fmt.Sprintf("silent-%d", i%silent), "infra", i))
			}
			for i := range 100 {
				add(of("quick", "infra", i))
			}
		})
		Eventually(answered.Load).Should(BeEquivalentTo(100))
		Eventually(stuck.Load).Should(BeEquivalentTo(silent*each), "each has its own share under way, and no more")
		Consistently(most.Load, 200*time.Millisecond).Should(BeEquivalentTo(silent * each))
	})

	It("works off 3,500 hosts, each once, none by two workers at a time, and keeps nothing of them", func(ctx SpecContext) {
		var mu sync.Mutex
		twice := false
		working, times := map[ctrl.Request]bool{}, map[ctrl.Request]int{}
		run(ctx, reconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
			mu.Lock()
			twice = twice || working[r]
			working[r] = true
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			working[r] = false
			times[r]++
			return ctrl.Result{}, nil
		}), func(add func(ctrl.Request)) {
			for i := range site {
				add(of("edge", fmt.Sprintf("pool-%d", i%7), i))
			}
		})
		Eventually(func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(times)
		}).Should(Equal(site))
		mu.Lock()
		defer mu.Unlock()
		Expect(times).To(HaveEach(1))
		Expect(twice).To(BeFalse())
	})
})

// run runs a real controller, with what feed adds, until the spec is over.
func run(ctx context.Context, reconciler reconcile.Reconciler, feed func(add func(ctrl.Request))) {
	GinkgoHelper()
	c, err := controller.NewUnmanaged("turns", fairqueue.Options(controller.Options{
		Reconciler: reconciler, MaxConcurrentReconciles: each, SkipNameValidation: ptr.To(true),
	}, placeOf))
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		feed(q.Add)
		return nil
	}))).To(Succeed())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Expect(<-ended).To(Succeed())
	})
}

var _ = Describe("Requests that wait", func() {
	It("of a small pool are done in turn with those of a large one that came before", func() {
		q := newQueue(each)
		for i := range 3400 {
			q.Add(of("edge", "large", i))
		}
		for i := range 100 {
			q.Add(of("edge", "small", i))
		}
		Expect(count(work(q, 200), "edge", "small")).To(Equal(100))
		Expect(work(q, 3300)).To(HaveLen(3300))
		Expect(q.Len()).To(BeZero())
	})

	It("of a Cluster are done in turn with those of another whose objects change all the time", func() {
		q := newQueue(each)
		for i := range site {
			q.Add(of("hot", "infra", i))
		}
		for i := range 100 {
			q.Add(of("calm", "infra", i))
		}
		calm := 0
		for range 201 {
			r, _, _ := q.GetWithPriority()
			if r.Namespace == "calm" {
				calm++
			} else {
				q.Add(r)
			}
			q.Done(r)
		}
		Expect(calm).To(Equal(100))
		Expect(q.Len()).To(Equal(site), "however often they were added")
	})

	It("are in it once, however often they are added", func() {
		q := newQueue(each)
		for range 20 {
			for i := range site {
				q.Add(of("edge", "infra", i))
			}
		}
		Expect(q.Len()).To(Equal(site))
		work(q, site)
		Expect(q.Len()).To(BeZero())
	})

	It("again while they are worked on are worked on once more, and not before that has ended", func() {
		q := newQueue(each)
		q.Add(of("edge", "infra", 0))
		r, _, _ := q.GetWithPriority()
		q.Add(r)
		q.Add(r)
		Expect(q.Len()).To(BeZero())
		q.Done(r)
		Expect(work(q, 1)).To(Equal([]ctrl.Request{r}))
		Expect(q.Len()).To(BeZero())
	})

	It("of a Cluster with all its workers busy are done when one of them has ended", func() {
		q := newQueue(1)
		q.Add(of("edge", "infra", 0))
		q.Add(of("edge", "infra", 1))
		first, _, _ := q.GetWithPriority()
		second := make(chan ctrl.Request, 1)
		go func() {
			r, _, _ := q.GetWithPriority()
			second <- r
		}()
		Consistently(second, 100*time.Millisecond).ShouldNot(Receive())
		q.Done(first)
		Eventually(second).Should(Receive(Equal(of("edge", "infra", 1))))
	})

	It("of a low priority come after the others of their pool, unless they are added as one of those", func() {
		q := newQueue(each)
		low := priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}
		for i := range 4 {
			q.AddWithOpts(low, of("edge", "infra", i))
		}
		q.AddWithOpts(priorityqueue.AddOpts{}, of("edge", "infra", 9))
		q.AddWithOpts(priorityqueue.AddOpts{}, of("edge", "infra", 2))
		Expect(work(q, 5)).To(Equal([]ctrl.Request{
			of("edge", "infra", 9), of("edge", "infra", 2), of("edge", "infra", 0), of("edge", "infra", 1), of("edge", "infra", 3)}))
		Expect(q.Len()).To(BeZero())
	})

	It("until a time, or for a rate limit, are done when that is over", func() {
		q := newQueue(each)
		q.AddWithOpts(priorityqueue.AddOpts{After: time.Second}, of("edge", "infra", 0))
		q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, of("edge", "infra", 1))
		Expect(work(q, 2)).To(Equal([]ctrl.Request{of("edge", "infra", 1), of("edge", "infra", 0)}))
	})

	It("are left when the controller ends", func() {
		q := newQueue(each)
		q.Add(of("edge", "infra", 0))
		q.ShutDown()
		_, _, shutdown := q.GetWithPriority()
		Expect(shutdown).To(BeTrue())
	})
})
