package fairqueue

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// scheduler chooses the next request: round robin among namespaces, then round robin among the Clusters of the
// namespace, then round robin among the pools of the Cluster, then first in, first out. As in every workqueue, a
// request is queued at most once, and only one worker processes it at a time.
type scheduler struct {
	maxInFlight int // of each Cluster
	flowOf      func(ctrl.Request) Flow
	meter       *meter

	mu           sync.Mutex
	changed      *sync.Cond
	idle         int // workers without a request
	requests     map[ctrl.Request]*request
	namespaces   map[string]*namespace
	roundRobin   []*namespace // namespaces with queued requests; the first one is next
	shuttingDown bool
}

var _ workqueue.TypedInterface[ctrl.Request] = &scheduler{}

// request is queued or in flight.
type request struct {
	ctrl.Request
	flow Flow
	// queued is true until a worker gets the request.
	queued bool
	// low is true while the request is scheduled after the requests of its pool that have the default priority.
	low bool
	// requeue is the flow to queue the request in when its worker is done, because it was added while in flight. It is
	// nil if it was not added.
	requeue    *Flow
	requeueLow bool
}

// namespace has Clusters with requests that are queued or in flight.
type namespace struct {
	name       string
	inFlight   int
	clusters   map[string]*cluster
	roundRobin []*cluster // Clusters with queued requests; the first one is next
}

// cluster has requests that are queued or in flight.
type cluster struct {
	name       string
	inFlight   int
	roundRobin []*pool // pools with queued requests; the first one is next
}

// pool has the queued requests of one flow, first in, first out. Those with a low priority are after all others.
type pool struct {
	role  string
	queue []*request
}

// Add queues a request.
func (s *scheduler) Add(r ctrl.Request) { s.add(r, false) }

func (s *scheduler) add(r ctrl.Request, low bool) {
	flow := s.flowOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shuttingDown {
		return
	}
	s.meter.Add(r)
	existing := s.requests[r]
	switch {
	case existing == nil:
		s.enqueue(&request{Request: r, flow: flow, low: low})
	case !existing.queued:
		existing.requeueLow = low && (existing.requeue == nil || existing.requeueLow)
		existing.requeue = &flow
	case existing.low && !low:
		existing.low = false
		p := s.poolOf(existing.flow)
		p.queue = append(slices.DeleteFunc(p.queue, func(r *request) bool { return r == existing }), existing)
	}
}

// enqueue appends a request to the queue of its pool.
func (s *scheduler) enqueue(r *request) {
	r.queued = true
	s.requests[r.Request] = r
	p := s.poolOf(r.flow)
	p.queue = append(p.queue, r)
	s.changed.Signal()
}

// poolOf returns the pool of a flow. It adds the pool, its Cluster and its namespace to the round robin if they are not
// in it.
func (s *scheduler) poolOf(flow Flow) *pool {
	n := s.namespaces[flow.Cluster.Namespace]
	if n == nil {
		n = &namespace{name: flow.Cluster.Namespace, clusters: map[string]*cluster{}}
		s.namespaces[n.name] = n
	}
	if len(n.roundRobin) == 0 {
		s.roundRobin = append(s.roundRobin, n)
	}
	c := n.clusters[flow.Cluster.Name]
	if c == nil {
		c = &cluster{name: flow.Cluster.Name}
		n.clusters[c.name] = c
	}
	if len(c.roundRobin) == 0 {
		n.roundRobin = append(n.roundRobin, c)
	}
	if i := slices.IndexFunc(c.roundRobin, func(p *pool) bool { return p.role == flow.Pool }); i >= 0 {
		return c.roundRobin[i]
	}
	p := &pool{role: flow.Pool}
	c.roundRobin = append(c.roundRobin, p)
	return p
}

// Get blocks until a request is queued of a Cluster with fewer than maxInFlight requests in flight, in a namespace with
// fewer requests in flight than there are idle workers. It returns that request. It returns true after ShutDown.
func (s *scheduler) Get() (ctrl.Request, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.shuttingDown {
			return ctrl.Request{}, true
		}
		if i := slices.IndexFunc(s.roundRobin, func(n *namespace) bool { return n.inFlight < s.idle && n.next(s.maxInFlight) >= 0 }); i >= 0 {
			return s.dequeue(i), false
		}
		s.changed.Wait()
	}
}

// next returns the index in the round robin of the next Cluster with fewer than maxInFlight requests in flight, or -1.
func (n *namespace) next(maxInFlight int) int {
	return slices.IndexFunc(n.roundRobin, func(c *cluster) bool { return c.inFlight < maxInFlight })
}

// dequeue removes the next request of the namespace at index i of the round robin. The namespace, the Cluster and the
// pool of the request become the last ones of their round robins, or leave them if they have no other request.
func (s *scheduler) dequeue(i int) ctrl.Request {
	n := take(&s.roundRobin, i)
	c := take(&n.roundRobin, n.next(s.maxInFlight))
	p := take(&c.roundRobin, 0)
	r := take(&p.queue, max(slices.IndexFunc(p.queue, func(r *request) bool { return !r.low }), 0))
	if len(p.queue) > 0 {
		c.roundRobin = append(c.roundRobin, p)
	}
	if len(c.roundRobin) > 0 {
		n.roundRobin = append(n.roundRobin, c)
	}
	if len(n.roundRobin) > 0 {
		s.roundRobin = append(s.roundRobin, n)
	}
	s.idle--
	n.inFlight++
	c.inFlight++
	r.queued = false
	s.meter.take(r.Request)
	return r.Request
}

// take removes an item and returns it.
func take[Item any](items *[]Item, i int) Item {
	item := (*items)[i]
	*items = slices.Delete(*items, i, i+1)
	return item
}

// Done marks a request as no longer in flight. If it was added while it was in flight, it is queued again. One more
// idle worker allows two other requests at most, one of its own namespace and one of another. The worker that calls
// Done gets one of them, and one that waits gets the other.
func (s *scheduler) Done(done ctrl.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests[done]
	if r == nil || r.queued {
		return
	}
	s.meter.Done(done)
	delete(s.requests, done)
	n := s.namespaces[r.flow.Cluster.Namespace]
	c := n.clusters[r.flow.Cluster.Name]
	s.idle++
	n.inFlight--
	c.inFlight--
	if r.requeue != nil && !s.shuttingDown {
		s.enqueue(&request{Request: done, flow: *r.requeue, low: r.requeueLow})
	}
	if c.inFlight == 0 && len(c.roundRobin) == 0 {
		delete(n.clusters, c.name)
	}
	if len(n.clusters) == 0 {
		delete(s.namespaces, n.name)
	}
	s.changed.Signal()
}

// Len returns the number of queued requests.
func (s *scheduler) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued := 0
	for _, r := range s.requests {
		if r.queued {
			queued++
		}
	}
	return queued
}

// ShutDown makes every worker stop after its current request. Queued requests are dropped: the initial list of the
// caches adds them again at the next start.
func (s *scheduler) ShutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuttingDown = true
	s.meter.ShutDown()
	s.changed.Broadcast()
}

// ShutDownWithDrain is the same as ShutDown: the controller itself waits for its workers.
func (s *scheduler) ShutDownWithDrain() { s.ShutDown() }

// ShuttingDown reports whether ShutDown was called.
func (s *scheduler) ShuttingDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shuttingDown
}

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
