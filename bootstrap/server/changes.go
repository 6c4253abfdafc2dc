package server

import "sync"

// changes wakes those who wait for an object, named by a key, to change.
type changes struct {
	mu      sync.Mutex
	waiting map[string]map[*subscription]struct{}
}

func newChanges() *changes { return &changes{waiting: map[string]map[*subscription]struct{}{}} }

// subscription gathers the changes of some objects. Subscribe to an object before looking at it: then no change between
// the look and the wait is lost.
type subscription struct {
	changes *changes
	keys    map[string]struct{}

	// changed has a value when any of the objects has changed since it was last received from.
	changed chan struct{}
}

func (c *changes) subscribe() *subscription {
	return &subscription{changes: c, keys: map[string]struct{}{}, changed: make(chan struct{}, 1)}
}

// to adds an object to the subscription; an object that is in it already stays so. Without a subscription (nil) it does nothing:
// most hosts have no need to wait.
func (s *subscription) to(key string) {
	if s == nil {
		return
	}
	if _, ok := s.keys[key]; ok {
		return
	}
	s.keys[key] = struct{}{}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if s.changes.waiting[key] == nil {
		s.changes.waiting[key] = map[*subscription]struct{}{}
	}
	s.changes.waiting[key][s] = struct{}{}
}

// end gives the subscription up.
func (s *subscription) end() {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	for key := range s.keys {
		delete(s.changes.waiting[key], s)
		if len(s.changes.waiting[key]) == 0 {
			delete(s.changes.waiting, key)
		}
	}
}

// notify tells every subscriber of an object that it has changed.
func (c *changes) notify(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.waiting[key] {
		select {
		case s.changed <- struct{}{}:
		default: // told already, and not looked since
		}
	}
}
