package storm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// patience is how long a storm, or a host that has booted and has not joined, may make no progress. Storms of thousands
// of hosts take hours, but never stand still.
const patience = 10 * time.Minute

// milestone is reached when a number of objects have reached a state.
type milestone struct {
	what string
	want int

	mu      sync.Mutex
	names   map[string]struct{}
	last    time.Time // when the last object reached the state
	at      time.Time
	reached chan struct{} // closed when the milestone is reached
}

func newMilestone(what string, want int) *milestone {
	return &milestone{what: what, want: want, names: map[string]struct{}{}, reached: make(chan struct{})}
}

// reach records that an object has reached the state, if has is true.
func (m *milestone) reach(name string, has bool) {
	if !has {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, before := m.names[name]; before {
		return
	}
	m.names[name] = struct{}{}
	m.last = time.Now()
	if len(m.names) == m.want {
		m.at = time.Now()
		close(m.reached)
	}
}

// wait waits until the milestone is reached and returns the time. It fails if no object reaches the state for as long
// as patience.
func (m *milestone) wait(ctx context.Context) (time.Time, error) {
	began := time.Now()
	for {
		m.mu.Lock()
		reached, since := len(m.names), began
		if m.last.After(began) {
			since = m.last
		}
		m.mu.Unlock()
		left := patience - time.Since(since)
		if left <= 0 {
			return time.Time{}, fmt.Errorf("%d of %d %s, and no other one in %s", reached, m.want, m.what, patience)
		}
		select {
		case <-m.reached:
			return m.at, nil
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d %s: %w", reached, m.want, m.what, context.Cause(ctx))
		case <-time.After(left):
		}
	}
}
