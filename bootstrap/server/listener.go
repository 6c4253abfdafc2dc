package server

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits limit the cost of connections. A connection is a stranger until it has sent a valid token, or the certificate
// of a host's kubelet: see markAgent.
type Limits struct {
	// Connections is the maximum number of open connections. Others wait in the accept queue of the kernel.
	Connections int

	// Strangers is the maximum number of connections that are strangers. At the maximum, the stranger that has kept the
	// server waiting longest is closed for a new connection. But the new connection waits while no stranger has kept
	// the server waiting for Patience, or for a few times what hosts needed recently, and while connections are in the
	// queue for turns. Time in which a connection waits for the server does not count, so no host is closed because the
	// server is slow.
	Strangers int
	Patience  time.Duration

	// Handshakes is the maximum number of strangers that have a turn: a handshake and one request. Strangers queue for
	// a turn in the order in which their ClientHello is complete; without a ClientHello, a stranger takes no place in
	// the queue. A turn ends with a valid token or the first answer. A stranger that keeps the server waiting for
	// longer than Turn in total loses its turn to the next one.
	Handshakes int
	Turn       time.Duration
}

// DefaultLimits are the limits for a site with thousands of hosts that boot at the same time. A stranger costs up to
// about 50 KiB (see docs/dev/security.md). A host sends its token within milliseconds.
var DefaultLimits = Limits{Connections: 10000, Strangers: 2000, Patience: 3 * time.Second, Handshakes: 256, Turn: 100 * time.Millisecond}

// Limits.Patience increases to patienceFactor times what hosts needed recently, up to maxPatience, and Limits.Turn to
// twice what they needed, up to maxTurn: a stranger that needs several times as long as hosts do is not a host. Only
// connections with a valid token count, so strangers cannot increase these limits.
const (
	patienceFactor = 4
	maxPatience    = 20 * time.Second
	maxTurn        = time.Second
)

// boundedListener accepts connections within Limits.
type boundedListener struct {
	net.Listener
	limits       Limits
	metrics      *Metrics
	startOnce    sync.Once
	closeOnce    sync.Once
	closed       chan struct{}
	acceptErrors chan error    // errors of the underlying listener, which Accept returns
	roomSignal   chan struct{} // has a value if there can be room for another connection
	turnSignal   chan struct{} // has a value if there can be a connection for Accept

	mu          sync.Mutex
	open        int
	agents      map[types.UID]int // connections that are not strangers, by the PoolbootConfig whose certificate they have sent
	strangers   *list.List        // of *connection, in the order in which they were accepted
	queue       []*connection     // the queue for turns
	handshakes  int               // connections that have a turn
	retryTime   time.Time         // no stranger can exceed the patience before this time
	averageWait time.Duration     // moving average of how long hosts kept the server waiting before they sent their token
}

// NewListener returns a listener that enforces limits. Run TLS on top of it.
func NewListener(listener net.Listener, limits Limits, metrics *Metrics) net.Listener {
	return &boundedListener{
		Listener: listener, limits: limits, metrics: metrics, strangers: list.New(), agents: map[types.UID]int{}, closed: make(chan struct{}),
		acceptErrors: make(chan error), roomSignal: make(chan struct{}, 1), turnSignal: make(chan struct{}, 1),
	}
}

// Accept returns the next connection that gets a turn. The connection has sent its ClientHello.
func (l *boundedListener) Accept() (net.Conn, error) {
	l.startOnce.Do(func() { go l.acceptAll() })
	for {
		c, wait := l.next()
		if c != nil {
			return c, nil
		}
		if err := l.wait(l.turnSignal, wait); err != nil {
			return nil, err
		}
	}
}

// next returns the connection that gets the next turn. If there is none, it returns how long to wait, where 0 means
// until the next signal.
func (l *boundedListener) next() (*connection, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if len(l.queue) == 0 { // admit closes strangers only while the queue is empty
			signal(l.roomSignal)
		}
	}()
	for len(l.queue) > 0 {
		if wait := l.awaitTurn(); wait > 0 {
			return nil, wait
		}
		c := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if c.closing { // closed while it waited
			continue
		}
		if _, closed := peek(c.Conn); closed { // the peer has closed it
			c.closeLater()
			continue
		}
		c.hasTurn, c.accepted, c.waitedBeforeTurn = true, true, c.waited
		l.handshakes++
		return c, 0
	}
	return nil, 0
}

// awaitTurn returns 0 if there is a turn, if necessary that of a connection that has exceeded its time. Otherwise it
// returns how long to wait. The caller holds the lock.
func (l *boundedListener) awaitTurn() time.Duration {
	if l.handshakes < l.limits.Handshakes {
		return 0
	}
	turn := max(l.limits.Turn, min(2*l.averageWait, maxTurn))
	now, wait := time.Now(), turn
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		if !c.hasTurn {
			continue
		}
		remaining := turn - (c.waitTime(now) - c.waitedBeforeTurn) // the total: otherwise, a connection that sends single bytes would keep its turn
		if remaining <= 0 {
			c.endTurn()
			return 0
		}
		wait = min(wait, remaining)
	}
	return wait
}

// acceptAll accepts connections from the kernel while there is room.
func (l *boundedListener) acceptAll() {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.acceptErrors <- err: // Accept returns it, and its caller backs off
			case <-l.closed:
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		c := &connection{Conn: accepted, listener: l}
		for {
			wait, admitted := l.admit(c)
			if admitted {
				go c.readClientHello()
				break
			}
			if err := l.wait(l.roomSignal, wait); err != nil {
				_ = accepted.Close()
				return
			}
		}
	}
}

// wait waits for a signal, and for at most d unless d is 0. It returns an error if the listener is closed and, for
// l.turn, the errors of the underlying listener.
func (l *boundedListener) wait(signal chan struct{}, d time.Duration) error {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	var acceptErrors chan error
	if signal == l.turnSignal {
		acceptErrors = l.acceptErrors
	}
	select {
	case <-signal:
		return nil
	case <-after:
		return nil
	case err := <-acceptErrors:
		return err
	case <-l.closed:
		return net.ErrClosed
	}
}

// admit counts a connection if there is room. Otherwise, it makes room if it can, and returns how long to wait, where 0
// means until the next signal.
func (l *boundedListener) admit(c *connection) (wait time.Duration, admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open < l.limits.Connections && l.strangers.Len() < l.limits.Strangers {
		l.open++
		c.element = l.strangers.PushBack(c)
		c.startWaiting(time.Now())
		l.metrics.connections.Set(float64(l.open))
		return 0, true
	}
	now := time.Now()
	if wait = l.retryTime.Sub(now); wait > 0 {
		return wait, false
	}
	patience := max(l.limits.Patience, min(patienceFactor*l.averageWait, maxPatience))
	if len(l.queue) > 0 { // a new connection would only wait for a turn too
		return patience, false
	}
	candidate, waited := l.longestWaiting(now, patience)
	if wait = patience - waited; wait > 0 || candidate == nil {
		l.retryTime = now.Add(wait)
		return wait, false
	}
	l.metrics.dropped.Inc()
	candidate.closeLater()
	return 0, false
}

// longestWaiting returns the stranger that has kept the server waiting longest, and for how long. A stranger whose
// bytes have arrived does not keep the server waiting: the server has not read them yet. The caller holds the lock.
func (l *boundedListener) longestWaiting(now time.Time, patience time.Duration) (candidate *connection, longest time.Duration) {
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		if c.pending == 0 {
			continue
		}
		waited := c.waitTime(now)
		if waited >= patience && waited > longest && !c.writing {
			if hasData, _ := peek(c.Conn); hasData {
				c.waitStart = now
				continue
			}
		}
		if waited > longest {
			candidate, longest = c, waited
		}
	}
	return candidate, longest
}

// Close closes the listener, and all connections that Accept has not returned.
func (l *boundedListener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	var waiting []*connection
	l.mu.Lock()
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); !c.accepted {
			waiting = append(waiting, c)
		}
	}
	l.mu.Unlock()
	for _, c := range waiting {
		_ = c.Close()
	}
	return err
}

func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
