package fairqueue

import (
	"sync"
	"time"

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
		return &paced{PriorityQueue: newQueue(name, limiter).(*queue), interval: interval, begun: map[ctrl.Request]time.Time{}}
	}
	return options
}

// paced is a queue that delays requests with a low priority.
type paced struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	interval time.Duration

	mu    sync.Mutex
	begun map[ctrl.Request]time.Time
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
	q.mu.Lock()
	defer q.mu.Unlock()
	if left := q.interval - now.Sub(q.begun[r]); left <= q.interval { // else the clock was set
		return max(left, 0)
	}
	return 0
}

// begin records that a reconcile begins, and forgets those that delay nothing any more.
func (q *paced) begin(r ctrl.Request, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for other, at := range q.begun {
		if now.Sub(at).Abs() > q.interval {
			delete(q.begun, other)
		}
	}
	q.begun[r] = now
}

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
