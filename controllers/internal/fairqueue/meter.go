package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// meter reports the workqueue metrics of a queue, such as workqueue_depth, through the metrics provider that
// controller-runtime sets in client-go. client-go does not export that provider, so the meter is a client-go workqueue
// that repeats the decisions of the scheduler. It never chooses a request, and is called only under the scheduler's
// lock.
type meter struct {
	*workqueue.Typed[ctrl.Request]
	order *externalOrder
}

// newMeter returns the meter of a controller's queue. As in client-go, a queue without a name has no metrics.
func newMeter(name string) *meter {
	order := &externalOrder{}
	return &meter{order: order, Typed: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[ctrl.Request]{Name: name, Queue: order})}
}

// take records that a worker gets a request, which must have been added.
func (m *meter) take(r ctrl.Request) {
	m.order.next = r
	m.Get()
}

// externalOrder is the order of the meter's queue: it pops the request that the scheduler has chosen.
type externalOrder struct {
	next   ctrl.Request
	queued int
}

var _ workqueue.Queue[ctrl.Request] = &externalOrder{}

// Touch implements workqueue.Queue.
func (o *externalOrder) Touch(ctrl.Request) {}

// Push implements workqueue.Queue.
func (o *externalOrder) Push(ctrl.Request) { o.queued++ }

// Len implements workqueue.Queue.
func (o *externalOrder) Len() int { return o.queued }

// Pop implements workqueue.Queue.
func (o *externalOrder) Pop() ctrl.Request {
	o.queued--
	return o.next
}
