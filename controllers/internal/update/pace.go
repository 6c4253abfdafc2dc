package update

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// poolInterval is the longest time within which a pool is looked at once, however many events it has. A host waits
	// at most for as long as that for its turn.
	poolInterval = time.Second
	// paceFactor is the time between two looks at a pool, in multiples of what a look takes: looks at a large pool
	// take at most a twentieth of a processor.
	paceFactor = 20
	// minInterval coalesces the events that one cause has.
	minInterval = 50 * time.Millisecond
)

// pace limits how often something is done for an object. The zero value does not limit it.
type pace struct {
	// interval is the longest time between two times.
	interval time.Duration

	mu   sync.Mutex
	last map[client.ObjectKey]turn
}

// turn is when something was done last, and how long after that it can be done again.
type turn struct {
	at    time.Time
	pause time.Duration
}

// wait returns how long to wait, or 0 if it is done now.
func (p *pace) wait(key client.ObjectKey, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[key]
	if left := last.pause - now.Sub(last.at); left > 0 && left <= p.interval { // else the clock was set
		return left
	}
	if p.last == nil {
		p.last = map[client.ObjectKey]turn{}
	}
	for other, last := range p.last { // what is older limits nothing
		if now.Sub(last.at).Abs() > p.interval {
			delete(p.last, other)
		}
	}
	p.last[key] = turn{at: now, pause: p.interval}
	return 0
}

// took shortens the pause after what is being done, which takes this long without the requests for it.
func (p *pace) took(key client.ObjectKey, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.last[key]; ok {
		last.pause = min(p.interval, max(paceFactor*took, minInterval))
		p.last[key] = last
	}
}
