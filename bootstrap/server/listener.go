package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Limits bound what connections cost. Until a connection has shown a good token it is a stranger's.
type Limits struct {
	// Connections is how many there may be; who comes beyond that waits in the kernel.
	Connections int

	// Strangers is how many of them may be strangers. When there are that many, the one that has been there longest is closed for
	// one that comes, unless it came less than Patience ago: then the one that comes waits.
	Strangers int
	Patience  time.Duration
}

// DefaultLimits let a site of some thousand hosts boot at once. A stranger costs up to some 50 KiB (see docs/security.md), and shows
// its token within milliseconds if it is a host.
var DefaultLimits = Limits{Connections: 10000, Strangers: 2000, Patience: 3 * time.Second}

// boundedListener accepts connections within limits.
type boundedListener struct {
	net.Listener
	limits  Limits
	metrics *Metrics
	left    chan struct{} // has a value when a connection has gone, or is a stranger's no more
	closed  chan struct{}
	close   sync.Once

	mu        sync.Mutex
	open      int
	strangers *list.List // of *connection, the oldest first
}

// NewListener returns a listener that keeps limits. Put TLS on top of it.
func NewListener(on net.Listener, limits Limits, metrics *Metrics) net.Listener {
	return &boundedListener{Listener: on, limits: limits, metrics: metrics,
		left: make(chan struct{}, 1), closed: make(chan struct{}), strangers: list.New()}
}

// Accept returns the next connection when there is room for it.
func (l *boundedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, on: l, since: time.Now()}
	for {
		wait, oldest := l.admit(c)
		switch {
		case wait == 0 && oldest == nil:
			return c, nil
		case oldest != nil:
			l.metrics.dropped.Inc()
			_ = oldest.Close()
		default:
			timer := time.NewTimer(wait)
			select {
			case <-l.left:
			case <-timer.C:
			case <-l.closed:
				timer.Stop()
				_ = accepted.Close()
				return nil, net.ErrClosed
			}
			timer.Stop()
		}
	}
}

// admit counts a connection in. When there is no room it returns the connection that is to be closed first, or how long to wait
// until there may be one.
func (l *boundedListener) admit(c *connection) (wait time.Duration, oldest *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open < l.limits.Connections && l.strangers.Len() < l.limits.Strangers {
		l.open++
		c.place = l.strangers.PushBack(c)
		l.metrics.connections.Set(float64(l.open))
		return 0, nil
	}
	first := l.strangers.Front()
	if first == nil {
		return l.limits.Patience, nil
	}
	oldest = first.Value.(*connection)
	if wait = l.limits.Patience - time.Since(oldest.since); wait > 0 {
		return wait, nil
	}
	return 0, oldest
}

// Close ends the listener, and whoever waits for room.
func (l *boundedListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *boundedListener) signal() {
	select {
	case l.left <- struct{}{}:
	default:
	}
}

// connection is one that counts.
type connection struct {
	net.Conn
	on    *boundedListener
	since time.Time
	gone  sync.Once
	place *list.Element // among the strangers; nil once it is none
}

// Close closes the connection and makes room.
func (c *connection) Close() error {
	c.gone.Do(func() {
		c.on.mu.Lock()
		c.on.open--
		c.on.metrics.connections.Set(float64(c.on.open))
		c.known()
		c.on.mu.Unlock()
		c.on.signal()
	})
	return c.Conn.Close()
}

// known takes a connection off the strangers, under the lock.
func (c *connection) known() {
	if c.place != nil {
		c.on.strangers.Remove(c.place)
		c.place = nil
	}
}

// connectionKey is where the context of a request has its *connection.
type connectionKey struct{}

// withConnection is an http.Server's ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secured, is := conn.(*tls.Conn); is {
		conn = secured.NetConn()
	}
	if counted, is := conn.(*connection); is {
		return context.WithValue(ctx, connectionKey{}, counted)
	}
	return ctx
}

// showedToken notes that the connection of a request is a host's.
func showedToken(ctx context.Context) {
	c, is := ctx.Value(connectionKey{}).(*connection)
	if !is {
		return
	}
	c.on.mu.Lock()
	stranger := c.place != nil
	c.known()
	c.on.mu.Unlock()
	if stranger {
		c.on.signal()
	}
}
