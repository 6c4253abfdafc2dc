package fairqueue

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Paced returns Options with a queue in which requests with a low priority cause a reconcile of an object at once, and
// then one in each interval. Others are not delayed: what a user changes, and what a reconcile asks for by its result
// or its error.
func Paced(options controller.Options, interval time.Duration) controller.Options {
	newQueue := options.NewQueue
	options.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		return &paced{PriorityQueue: newQueue(name, limiter).(*queue), interval: interval, begun: cache.NewExpiring()}
	}
	return options
}

// paced is a queue that delays requests with a low priority.
type paced struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	interval time.Duration
	// begun has when the last reconcile of an object began, for an interval: ctrl.Request → time.Time.
	begun *cache.Expiring
}

// AddWithOpts adds requests.
func (q *paced) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	for _, r := range requests {
		o := o
		if o.Priority != nil && *o.Priority < 0 && o.After == 0 && !o.RateLimited {
			o.After = q.wait(r, time.Now())
		}
		q.PriorityQueue.AddWithOpts(o, r)
	}
}

// wait returns how much of the interval is left.
func (q *paced) wait(r ctrl.Request, now time.Time) time.Duration {
	begun, ok := q.begun.Get(r)
	if !ok {
		return 0
	}
	if left := q.interval - now.Sub(begun.(time.Time)); left <= q.interval { // else the clock was set
		return max(left, 0)
	}
	return 0
}

// begin records that a reconcile begins.
func (q *paced) begin(r ctrl.Request, now time.Time) { q.begun.Set(r, now, q.interval) }

// Get blocks until a request is scheduled, and returns it.
func (q *paced) Get() (ctrl.Request, bool) {
	r, shutdown := q.PriorityQueue.Get()
	q.begin(r, time.Now())
	return r, shutdown
}

// GetWithPriority does the same as Get.
func (q *paced) GetWithPriority() (ctrl.Request, int, bool) {
	r, shutdown := q.Get()
	return r, 0, shutdown
}
