package storm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// milestone is reached when a number of objects have reached a state.
type milestone struct {
	what string
	want int

	mu      sync.Mutex
	names   map[string]struct{}
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
	if len(m.names) == m.want {
		m.at = time.Now()
		close(m.reached)
	}
}

// wait waits until the milestone is reached and returns the time.
func (m *milestone) wait(ctx context.Context) (time.Time, error) {
	select {
	case <-m.reached:
		return m.at, nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return time.Time{}, fmt.Errorf("%d of %d %s: %w", len(m.names), m.want, m.what, ctx.Err())
	}
}
