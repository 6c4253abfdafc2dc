package service

import (
	"sync"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
)

// latest is the Node as it was seen last. changed has a value after it changed.
type latest struct {
	mu      sync.Mutex
	node    agent.Node
	see     func(agent.Node)
	changed chan struct{}
}

func newLatest() *latest { return &latest{changed: make(chan struct{}, 1), see: func(agent.Node) {}} }

// follow calls a function with the Node now and whenever it is seen.
func (l *latest) follow(see func(agent.Node)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.see = see
	see(l.node)
}

func (l *latest) set(node agent.Node) {
	l.mu.Lock()
	l.node = node
	l.see(node)
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *latest) get() agent.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}

// logging returns a function that logs whether the Node is known when that changes, and why not.
func (s *Service) logging(see func(agent.Node)) func(agent.Node) {
	last := agent.Node{Known: true}
	return func(node agent.Node) {
		switch {
		case !node.Known && node.Problem != last.Problem:
			s.Log.Warn("the agent can't read its Node from the API server", "error", node.Problem)
		case node.Known && !last.Known:
			s.Log.Info("the agent reads its Node again")
		}
		last = node
		see(node)
	}
}
