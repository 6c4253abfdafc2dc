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

// countInterval is how often at most a pool counts its Machines: when many boot at once, each count would be out of
// date before it is written.
const countInterval = time.Second

// queue is a controller's.
type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// gathered sends what a map function makes of an object, also of its former self, when countInterval is over: all
// events until then become one.
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
