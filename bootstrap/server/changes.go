package server

import "sync"

// changes notifies requests that wait for objects to change.
type changes struct {
	mu            sync.Mutex
	subscriptions map[object]map[*subscription]struct{}
}

func newChanges() *changes { return &changes{subscriptions: map[object]map[*subscription]struct{}{}} }

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

// add adds an object to the subscription. On a nil subscription it does nothing: most requests need not wait.
func (s *subscription) add(key object) {
	if s == nil {
		return
	}
	if _, ok := s.objects[key]; ok {
		return
	}
	s.objects[key] = struct{}{}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if s.changes.subscriptions[key] == nil {
		s.changes.subscriptions[key] = map[*subscription]struct{}{}
	}
	s.changes.subscriptions[key][s] = struct{}{}
}

// cancel removes the subscription.
func (s *subscription) cancel() {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	for key := range s.objects {
		delete(s.changes.subscriptions[key], s)
		if len(s.changes.subscriptions[key]) == 0 {
			delete(s.changes.subscriptions, key)
		}
	}
}

// notify notifies all subscribers of an object that it has changed.
func (c *changes) notify(key object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subscriptions[key] {
		select {
		case s.changed <- struct{}{}:
		default: // a notification is pending
		}
	}
}
