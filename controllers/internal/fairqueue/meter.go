package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// meter reports the workqueue metrics of a queue (workqueue_depth and its siblings) through the metrics provider that
// controller-runtime gives client-go. That provider is not exported, so the meter is a client-go workqueue that repeats
// what turns decides: it never chooses a request, and it is only called under the lock of turns.
type meter struct {
	*workqueue.Typed[ctrl.Request]
	chosen *chosen
}

// newMeter returns the meter of a controller's queue; one without a name reports nothing, as in client-go.
func newMeter(name string) *meter {
	c := &chosen{}
	return &meter{chosen: c, Typed: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[ctrl.Request]{Name: name, Queue: c})}
}

// take records that a worker takes a request, which must have been added.
func (m *meter) take(r ctrl.Request) {
	m.chosen.next = r
	m.Get()
}

// chosen is the order of the meter's queue: the next request is the one that turns has chosen.
type chosen struct {
	next    ctrl.Request
	waiting int
}

var _ workqueue.Queue[ctrl.Request] = &chosen{}

func (c *chosen) Touch(ctrl.Request) {}

func (c *chosen) Push(ctrl.Request) { c.waiting++ }

func (c *chosen) Len() int { return c.waiting }

func (c *chosen) Pop() ctrl.Request {
	c.waiting--
	return c.next
}
