package fairqueue

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turns is the queue proper: each request is in it once, however often it is added, and is worked on by one worker at a
// time.
type turns struct {
	each    int
	placeOf func(ctrl.Request) Place
	meter   *meter

	mu           sync.Mutex
	changed      *sync.Cond
	requests     map[ctrl.Request]*request
	clusters     map[client.ObjectKey]*cluster
	order        []*cluster // those with requests that wait, whose turn is next first
	shuttingDown bool
}

var _ workqueue.TypedInterface[ctrl.Request] = &turns{}

// request is one that waits, or is worked on.
type request struct {
	ctrl.Request
	place Place
	// waits is true until a worker takes it, low while it comes after the others of its pool.
	waits, low bool
	// again is where it is to be put when the worker has done, because it was added meanwhile; nil when it was not.
	again    *Place
	againLow bool
}

// cluster is one with requests that wait or are worked on.
type cluster struct {
	key     client.ObjectKey
	working int
	pools   []*pool // those with requests that wait, whose turn is next first
}

// pool has the requests that wait in it, in the order in which they came: those of a low priority apart, and after the
// others. One that has come to the others since is skipped there.
type pool struct {
	role      string
	next, low []*request
}

// Add adds a request, to wait for its turn.
func (t *turns) Add(r ctrl.Request) { t.add(r, false) }

func (t *turns) add(r ctrl.Request, low bool) {
	place := t.placeOf(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shuttingDown {
		return
	}
	t.meter.Add(r)
	known := t.requests[r]
	switch {
	case known == nil:
		t.put(&request{Request: r, place: place, low: low})
	case !known.waits:
		known.againLow = low && (known.again == nil || known.againLow)
		known.again = &place
	case known.low && !low:
		known.low = false
		t.poolOf(known.place).next = append(t.poolOf(known.place).next, known)
	}
}

// put has a request wait at the end of its pool.
func (t *turns) put(r *request) {
	r.waits = true
	t.requests[r.Request] = r
	p := t.poolOf(r.place)
	if r.low {
		p.low = append(p.low, r)
	} else {
		p.next = append(p.next, r)
	}
	t.changed.Signal()
}

// poolOf returns the pool at a place, with a turn for it and for its Cluster.
func (t *turns) poolOf(place Place) *pool {
	c := t.clusters[place.Cluster]
	if c == nil {
		c = &cluster{key: place.Cluster}
		t.clusters[place.Cluster] = c
	}
	if len(c.pools) == 0 {
		t.order = append(t.order, c)
	}
	if i := slices.IndexFunc(c.pools, func(p *pool) bool { return p.role == place.Pool }); i >= 0 {
		return c.pools[i]
	}
	p := &pool{role: place.Pool}
	c.pools = append(c.pools, p)
	return p
}

// Get returns the next request once there is one of a Cluster that has a worker left. After ShutDown there is none.
func (t *turns) Get() (ctrl.Request, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.shuttingDown {
			return ctrl.Request{}, true
		}
		if i := slices.IndexFunc(t.order, func(c *cluster) bool { return c.working < t.each }); i >= 0 {
			return t.take(i), false
		}
		t.changed.Wait()
	}
}

// take takes the next request of a Cluster, and gives the turn to the next Cluster, and in this one to the next pool.
func (t *turns) take(i int) ctrl.Request {
	c := t.order[i]
	t.order = slices.Delete(t.order, i, i+1)
	p := c.pools[0]
	c.pools = slices.Delete(c.pools, 0, 1)
	r := p.take()
	if !p.empty() {
		c.pools = append(c.pools, p)
	}
	if len(c.pools) > 0 {
		t.order = append(t.order, c)
	}
	c.working++
	r.waits = false
	t.meter.take(r.Request)
	return r.Request
}

func (p *pool) take() *request {
	from := &p.next
	if len(p.next) == 0 {
		p.skip()
		from = &p.low
	}
	r := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	return r
}

// skip drops what does not wait in the second list any more.
func (p *pool) skip() {
	for len(p.low) > 0 && !p.low[0].low {
		p.low[0] = nil
		p.low = p.low[1:]
	}
}

func (p *pool) empty() bool {
	p.skip()
	return len(p.next) == 0 && len(p.low) == 0
}

// Done gives the worker of a request back to its Cluster. What was added meanwhile waits again.
func (t *turns) Done(done ctrl.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.requests[done]
	if r == nil || r.waits {
		return
	}
	t.meter.Done(done)
	delete(t.requests, done)
	c := t.clusters[r.place.Cluster]
	c.working--
	if r.again != nil && !t.shuttingDown {
		t.put(&request{Request: done, place: *r.again, low: r.againLow})
	}
	if c.working == 0 && len(c.pools) == 0 {
		delete(t.clusters, c.key)
	}
	t.changed.Signal()
}

// Len is how many requests wait.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := 0
	for _, r := range t.requests {
		if r.waits {
			waiting++
		}
	}
	return waiting
}

// ShutDown has every worker end after the request that it is at: what waits is found again at the next start.
func (t *turns) ShutDown() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shuttingDown = true
	t.meter.ShutDown()
	t.changed.Broadcast()
}

// ShutDownWithDrain is ShutDown: the controllers that wait for their workers do so themselves.
func (t *turns) ShutDownWithDrain() { t.ShutDown() }

// ShuttingDown tells whether ShutDown was called.
func (t *turns) ShuttingDown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shuttingDown
}
