package fairqueue

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

var _ = Describe("A paced queue", func() {
	a, b := ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}}, ctrl.Request{NamespacedName: client.ObjectKey{Name: "b"}}
	newPaced := func(interval time.Duration) *paced {
		options := Paced(Options(controller.Options{}, FlowOfCluster), interval)
		q := options.NewQueue("paced", workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Millisecond, time.Second)).(*paced)
		DeferCleanup(q.ShutDown)
		return q
	}
	next := func(q *paced) ctrl.Request {
		r, _ := q.Get()
		q.Done(r)
		return r
	}

	event := func(q *paced, r ctrl.Request) {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, r)
	}

	It("returns the first event of an object at once, and all later ones as one at the end of the interval", func() {
		const interval = 200 * time.Millisecond
		q := newPaced(interval)
		event(q, a)
		Expect(next(q)).To(Equal(a))
		began := time.Now()
		for range 10 {
			event(q, a)
		}
		event(q, b)
		Expect(next(q)).To(Equal(b), "another object does not wait")
		Expect(next(q)).To(Equal(a))
		Expect(time.Since(began)).To(BeNumerically(">=", interval-10*time.Millisecond))
		Consistently(q.Len, "50ms").Should(BeZero())
	})

	It("delays neither a change of a user nor a retry", func() {
		q := newPaced(time.Hour)
		event(q, a)
		Expect(next(q)).To(Equal(a))
		q.Add(a)
		Expect(next(q)).To(Equal(a))
		q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, Priority: ptr.To(handler.LowPriority)}, a)
		Expect(next(q)).To(Equal(a))
	})

	It("remembers nothing for longer than an interval, and delays nothing if the clock was set back", func() {
		const interval = time.Second
		q, now := newPaced(interval), time.Now()
		clock := clocktesting.NewFakeClock(now)
		q.begun = cache.NewExpiringWithClock(clock)
		q.begin(a, now)
		Expect(q.wait(a, now.Add(interval/2))).To(Equal(interval / 2))
		Expect(q.wait(a, now.Add(-time.Hour))).To(BeZero())
		clock.Step(2 * interval)
		q.begin(b, clock.Now())
		Expect(q.begun.Len()).To(Equal(1))
	})
})
