package machineconfigpool

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// countInterval is the minimum time between two counts of the Machines of a pool. When many Machines boot at the same
// time, each count would be outdated before it is written.
const countInterval = time.Second

// queue is the workqueue of a controller.
type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// gathered adds the requests of a map function for the old and the new object after countInterval. So all events within
// this time cause one reconcile.
func gathered(requests handler.MapFunc) handler.EventHandler {
	send := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, o := range objects {
			for _, request := range requests(ctx, o) {
				q.AddAfter(request, countInterval)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { send(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { send(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { send(ctx, q, e.Object) },
	}
}
