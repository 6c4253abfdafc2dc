package server

import "sync"

// changes wakes those who wait for an object, to change.
type changes struct {
	mu      sync.Mutex
	waiting map[object]map[*subscription]struct{}
}

func newChanges() *changes { return &changes{waiting: map[object]map[*subscription]struct{}{}} }

// subscription gathers the changes of some objects. Subscribe to an object before looking at it: then no change between
// the look and the wait is lost.
type subscription struct {
	changes *changes
	objects map[object]struct{}

	// changed has a value when any of the objects has changed since it was last received from.
	changed chan struct{}
}

func (c *changes) subscribe() *subscription {
	return &subscription{changes: c, objects: map[object]struct{}{}, changed: make(chan struct{}, 1)}
}

// to adds an object to the subscription; an object that is in it already stays so. Without a subscription (nil) it does
// nothing: most hosts have no need to wait.
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

// end gives the subscription up.
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

// notify tells every subscriber of an object that it has changed.
func (c *changes) notify(what object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.waiting[what] {
		select {
		case s.changed <- struct{}{}:
		default: // told already, and not looked since
		}
	}
}
