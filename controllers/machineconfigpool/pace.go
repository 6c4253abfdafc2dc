package machineconfigpool

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interval is the shortest time between two looks at a pool. A pool with thousands of hosts has many events, each look
// reads all hosts, and what it counts is outdated soon. So a look is for all events since the one before.
const interval = 2 * time.Second

// pace limits how often something is done for an object. The zero value does not limit it.
type pace struct {
	interval time.Duration

	mu   sync.Mutex
	last map[client.ObjectKey]time.Time
}

// wait returns how long to wait, or 0 if it is done now.
func (p *pace) wait(key client.ObjectKey, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.interval - now.Sub(p.last[key]); left > 0 && left <= p.interval { // else the clock was set
		return left
	}
	if p.last == nil {
		p.last = map[client.ObjectKey]time.Time{}
	}
	for other, last := range p.last { // what is older limits nothing
		if now.Sub(last).Abs() > p.interval {
			delete(p.last, other)
		}
	}
	p.last[key] = now
	return 0
}
