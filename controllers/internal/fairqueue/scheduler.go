package fairqueue

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scheduler chooses the next request: round robin among Clusters, then round robin among the pools of the Cluster, then
// first in, first out. As in every workqueue, a request is queued at most once, and only one worker processes it at a
// time.
type scheduler struct {
	maxInFlight int
	flowOf      func(ctrl.Request) Flow
	meter       *meter

	mu           sync.Mutex
	changed      *sync.Cond
	requests     map[ctrl.Request]*request
	clusters     map[client.ObjectKey]*cluster
	roundRobin   []*cluster // Clusters with queued requests; the first one is next
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

// cluster has requests that are queued or in flight.
type cluster struct {
	key        client.ObjectKey
	inFlight   int
	roundRobin []*pool // pools with queued requests; the first one is next
}

// pool has the queued requests of one flow, first in, first out, in one queue per priority. When the priority of a
// request is raised, it is appended to the queue normal and its entry in the queue low becomes obsolete.
type pool struct {
	role        string
	normal, low []*request
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
		p.normal = append(p.normal, existing)
	}
}

// enqueue appends a request to the queue of its pool.
func (s *scheduler) enqueue(r *request) {
	r.queued = true
	s.requests[r.Request] = r
	p := s.poolOf(r.flow)
	if r.low {
		p.low = append(p.low, r)
	} else {
		p.normal = append(p.normal, r)
	}
	s.changed.Signal()
}

// poolOf returns the pool of a flow. It adds the pool and its Cluster to the round robin if they are not in it.
func (s *scheduler) poolOf(flow Flow) *pool {
	c := s.clusters[flow.Cluster]
	if c == nil {
		c = &cluster{key: flow.Cluster}
		s.clusters[flow.Cluster] = c
	}
	if len(c.roundRobin) == 0 {
		s.roundRobin = append(s.roundRobin, c)
	}
	if i := slices.IndexFunc(c.roundRobin, func(p *pool) bool { return p.role == flow.Pool }); i >= 0 {
		return c.roundRobin[i]
	}
	p := &pool{role: flow.Pool}
	c.roundRobin = append(c.roundRobin, p)
	return p
}

// Get blocks until a Cluster with fewer than maxInFlight requests in flight has a queued request, and returns that
// request. It returns true after ShutDown.
func (s *scheduler) Get() (ctrl.Request, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.shuttingDown {
			return ctrl.Request{}, true
		}
		if i := slices.IndexFunc(s.roundRobin, func(c *cluster) bool { return c.inFlight < s.maxInFlight }); i >= 0 {
			return s.dequeue(i), false
		}
		s.changed.Wait()
	}
}

// dequeue removes the next request of the Cluster at index i of the round robin, and moves the Cluster and the pool of
// the request to the end of their round robin.
func (s *scheduler) dequeue(i int) ctrl.Request {
	c := s.roundRobin[i]
	s.roundRobin = slices.Delete(s.roundRobin, i, i+1)
	p := c.roundRobin[0]
	c.roundRobin = slices.Delete(c.roundRobin, 0, 1)
	r := p.dequeue()
	if !p.isEmpty() {
		c.roundRobin = append(c.roundRobin, p)
	}
	if len(c.roundRobin) > 0 {
		s.roundRobin = append(s.roundRobin, c)
	}
	c.inFlight++
	r.queued = false
	s.meter.take(r.Request)
	return r.Request
}

func (p *pool) dequeue() *request {
	from := &p.normal
	if len(p.normal) == 0 {
		p.dropObsolete()
		from = &p.low
	}
	r := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	return r
}

// dropObsolete drops entries from the head of the queue low whose requests are in the queue normal since.
func (p *pool) dropObsolete() {
	for len(p.low) > 0 && !p.low[0].low {
		p.low[0] = nil
		p.low = p.low[1:]
	}
}

func (p *pool) isEmpty() bool {
	p.dropObsolete()
	return len(p.normal) == 0 && len(p.low) == 0
}

// Done marks a request as no longer in flight. If it was added while it was in flight, it is queued again.
func (s *scheduler) Done(done ctrl.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests[done]
	if r == nil || r.queued {
		return
	}
	s.meter.Done(done)
	delete(s.requests, done)
	c := s.clusters[r.flow.Cluster]
	c.inFlight--
	if r.requeue != nil && !s.shuttingDown {
		s.enqueue(&request{Request: done, flow: *r.requeue, low: r.requeueLow})
	}
	if c.inFlight == 0 && len(c.roundRobin) == 0 {
		delete(s.clusters, c.key)
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
