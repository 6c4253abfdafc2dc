// Package fairqueue shares a controller's workers among Clusters and their pools: a Cluster whose API server is slow,
// or whose objects change all the time, keeps a bounded number of workers busy, and among the requests that wait
// Clusters take turns, and in each of them its pools. It decides nothing about what a request is for.
package fairqueue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// ClustersAtOnce is how many Clusters may each keep as many workers busy as they are allowed to before another one has
// to wait.
const ClustersAtOnce = 10

// Place is where a request waits: with those of its Cluster, and there with those of its pool.
type Place struct {
	Cluster client.ObjectKey
	// Pool is the role of the pool; empty when that is not known yet, or does not matter.
	Pool string
}

// Options returns the options of a controller whose Clusters take turns. MaxConcurrentReconciles becomes what each
// Cluster may have under way at once; the workers are ClustersAtOnce times as many. placeOf is asked whenever a request
// is added, so it must answer from memory.
func Options(options controller.Options, placeOf func(ctrl.Request) Place) controller.Options {
	each := max(options.MaxConcurrentReconciles, 1)
	options.MaxConcurrentReconciles = each * ClustersAtOnce
	options.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		return newQueue(name, limiter, each, placeOf)
	}
	return options
}

// queue puts client-go's delays and rate limits, and the priorities of controller-runtime, before the turns.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	turns *turns
}

var _ priorityqueue.PriorityQueue[ctrl.Request] = &queue{}

func newQueue(name string, limiter workqueue.TypedRateLimiter[ctrl.Request], each int, placeOf func(ctrl.Request) Place) *queue {
	t := &turns{each: each, placeOf: placeOf, meter: newMeter(name), requests: map[ctrl.Request]*request{}, clusters: map[client.ObjectKey]*cluster{}}
	t.changed = sync.NewCond(&t.mu)
	return &queue{turns: t, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[ctrl.Request]{
		Name: name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[ctrl.Request]{
			Name: name, Queue: t,
		}),
	})}
}

// AddWithOpts adds requests. Those of a low priority, as of a cache's first list, come after the others of their pool;
// a request that is delayed has no priority.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	for _, r := range requests {
		switch {
		case o.RateLimited:
			q.AddRateLimited(r)
		case o.After > time.Duration(0):
			q.AddAfter(r, o.After)
		default:
			q.turns.add(r, o.Priority != nil && *o.Priority < 0)
		}
	}
}

// GetWithPriority returns the next request once there is one whose turn it is.
func (q *queue) GetWithPriority() (ctrl.Request, int, bool) {
	r, shutdown := q.Get()
	return r, 0, shutdown
}
