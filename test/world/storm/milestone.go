package storm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// milestone is reached when so and so many objects have come to a point.
type milestone struct {
	what string
	want int

	mu      sync.Mutex
	names   map[string]struct{}
	at      time.Time
	reached chan struct{} // closed once it is
}

func newMilestone(what string, want int) *milestone {
	return &milestone{what: what, want: want, names: map[string]struct{}{}, reached: make(chan struct{})}
}

// reach notes that an object has come to the point, if it has.
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

// wait returns when the milestone was reached.
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
