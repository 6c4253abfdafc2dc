package server

import (
	"net"
	"net/netip"
	"sync"
)

// Limits limit the cost of connections. One source address gets at most half of each, so that a flood from there leaves
// the other half to hosts.
type Limits struct {
	// Connections is the maximum number of open connections. Others wait in the accept queue of the kernel, and those
	// from an address that has its half are closed.
	Connections int

	// Turns is the maximum number of connections in a handshake and their first request, until that has a valid token
	// or certificate, is answered, or takes longer than two seconds. Others wait, and their time limits start with
	// their turn: if thousands of hosts that boot at once shared the processor, all of their handshakes would exceed
	// the limit at the same time.
	Turns int
}

// DefaultLimits are the limits for a site with thousands of hosts that boot at the same time, even if all of them have
// the address of one load balancer or router.
var DefaultLimits = Limits{Connections: 10000, Turns: 256}

// limitedListener accepts connections within Limits.
type limitedListener struct {
	net.Listener
	limits  Limits
	metrics *Metrics
	places  chan struct{} // one for each open connection
	turns   chan struct{} // one for each turn
	close   func() error
	closed  chan struct{}

	mu      sync.Mutex
	sources map[netip.Addr]*source
}

// source is an address from which there are connections.
type source struct {
	open  int           // protected by the lock of the listener
	turns chan struct{} // one for each turn of its connections
}

// NewListener returns a listener that enforces limits. Run TLS on top of it.
func NewListener(listener net.Listener, limits Limits, metrics *Metrics) net.Listener {
	closed := make(chan struct{})
	return &limitedListener{
		Listener: listener, limits: limits, metrics: metrics, closed: closed,
		places: make(chan struct{}, limits.Connections), turns: make(chan struct{}, limits.Turns), sources: map[netip.Addr]*source{},
		close: sync.OnceValue(func() error { close(closed); return listener.Close() }),
	}
}

// Accept returns the next connection whose address has not too many.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		accepted, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		if c := l.count(accepted); c != nil {
			return c, nil
		}
		l.metrics.dropped.Inc()
		_ = accepted.Close()
		<-l.places
	}
}

// Close closes the listener, and not its connections.
func (l *limitedListener) Close() error { return l.close() }

// count counts a connection for its address. It returns nil if the address has its half of the connections.
func (l *limitedListener) count(accepted net.Conn) *connection {
	address := hostOf(accepted.RemoteAddr().String())
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.sources[address]
	if from == nil {
		from = &source{turns: make(chan struct{}, l.limits.Turns/2)}
		l.sources[address] = from
	}
	if from.open == l.limits.Connections/2 {
		return nil
	}
	from.open++
	l.metrics.connections.Inc()
	return &connection{Conn: accepted, listener: l, address: address, source: from, closed: make(chan struct{})}
}

// uncount makes room for another connection.
func (l *limitedListener) uncount(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.source.open--; c.source.open == 0 {
		delete(l.sources, c.address)
	}
	l.metrics.connections.Dec()
	<-l.places
}
