package machineconfigpool

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// countInterval is the minimum time between two counts of the Machines of a pool. When many Machines boot at the same
// time, each count would be outdated before it is written.
const countInterval = 5 * time.Second

// queue is the workqueue of a controller.
type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// countHandler adds the requests of a map function for the old and the new object. The first event of a pool causes a
// count at once. All further events within countInterval cause one more, at the end of the interval.
//
// Every event adds its request, because an earlier request for the end of the interval can be gone: the workqueue
// merges it with another request for the pool, and the pool is reconciled early, before this event.
type countHandler struct {
	requests handler.MapFunc
	clock    clock.PassiveClock

	mu sync.Mutex
	// due contains, for each pool, the time of its last or next count.
	due map[ctrl.Request]time.Time
}

func newCountHandler(requests handler.MapFunc, clock clock.PassiveClock) handler.EventHandler {
	h := &countHandler{requests: requests, clock: clock, due: map[ctrl.Request]time.Time{}}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { h.count(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { h.count(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { h.count(ctx, q, e.Object) },
	}
}

func (h *countHandler) count(ctx context.Context, q queue, objects ...client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	for _, o := range objects {
		for _, request := range h.requests(ctx, o) {
			due := h.due[request]
			if !due.After(now) {
				if due = due.Add(countInterval); due.Before(now) {
					due = now
				}
				h.due[request] = due
			}
			q.AddAfter(request, due.Sub(now))
		}
	}
	for request, due := range h.due { // also those of deleted pools
		if now.Sub(due) > countInterval {
			delete(h.due, request)
		}
	}
}
