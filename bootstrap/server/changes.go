package server

import "sync"

// changes notifies requests that wait for objects to change.
type changes struct {
	mu      sync.Mutex
	waiting map[object]map[*subscription]struct{}
}

func newChanges() *changes { return &changes{waiting: map[object]map[*subscription]struct{}{}} }

// subscription collects the changes of some objects. Subscribe to an object before reading it, so that no change
// between the read and the wait is lost.
type subscription struct {
	changes *changes
	objects map[object]struct{}

	// changed has a value if any of the objects has changed since the last receive.
	changed chan struct{}
}

func (c *changes) subscribe() *subscription {
	return &subscription{changes: c, objects: map[object]struct{}{}, changed: make(chan struct{}, 1)}
}

// to adds an object to the subscription. On a nil subscription it does nothing: most requests need not wait.
func (s *subscription) to(what object) {
	if s == nil {
		return
	}
	if _, ok := s.objects[what]; ok {
		return
	}
	s.objects[what] = struct{}{}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if s.changes.waiting[what] == nil {
		s.changes.waiting[what] = map[*subscription]struct{}{}
	}
	s.changes.waiting[what][s] = struct{}{}
}

// end removes the subscription.
func (s *subscription) end() {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	for what := range s.objects {
		delete(s.changes.waiting[what], s)
		if len(s.changes.waiting[what]) == 0 {
			delete(s.changes.waiting, what)
		}
	}
}

// notify notifies all subscribers of an object that it has changed.
func (c *changes) notify(what object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.waiting[what] {
		select {
		case s.changed <- struct{}{}:
		default: // a notification is pending
		}
	}
}
