package server

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"time"
)

// Limits bound what connections cost. Until a connection has shown a good token it is a stranger's.
type Limits struct {
	// Connections is how many there may be; the others wait in the kernel's accept queue.
	Connections int

	// Strangers is how many of them may be strangers. When there are that many, the one that has kept the server
	// waiting longest is closed for a new one, unless that is less than Patience, or less than a few times what hosts
	// needed lately, or others wait for their turn: then the new one waits. Time in which a connection waits for the
	// server does not count, so a host is not closed because the server is slow.
	Strangers int
	Patience  time.Duration

	// Handshakes is how many strangers are served at once. Those that have sent their ClientHello wait for their turn,
	// first come, first served; those that have not need none. A turn ends with the token or the first answer, and one
	// that keeps the server waiting for longer than Turn, all in all, loses it to the next.
	Handshakes int
	Turn       time.Duration
}

// DefaultLimits let a site of some thousand hosts boot at once. A stranger costs up to some 50 KiB (see
// docs/security.md), and shows its token within milliseconds if it is a host.
var DefaultLimits = Limits{Connections: 10000, Strangers: 2000, Patience: 3 * time.Second, Handshakes: 256, Turn: 100 * time.Millisecond}

// Hosts tell how patient to be: strangers that need several times as long as those are none. Nobody else can say that
// hosts are slow.
const (
	patienceFactor = 4
	maxPatience    = 20 * time.Second
	maxTurn        = time.Second
)

// boundedListener accepts connections within limits.
type boundedListener struct {
	net.Listener
	limits  Limits
	metrics *Metrics
	begin   sync.Once
	end     sync.Once
	closed  chan struct{}
	failed  chan error    // what the kernel answered instead of a connection
	room    chan struct{} // has a value when there may be room for another connection
	turn    chan struct{} // has a value when there may be a connection for Accept

	mu         sync.Mutex
	open       int
	strangers  *list.List    // of *connection, in the order in which they came
	greeted    []*connection // those that wait for their turn, the next first
	handshakes int           // those that have their turn
	tryAgain   time.Time     // no stranger can have used up the patience before
	needs      time.Duration // how long hosts kept the server waiting before they showed their token, on average of the last ones
}

// NewListener returns a listener that keeps limits. Put TLS on top of it.
func NewListener(on net.Listener, limits Limits, metrics *Metrics) net.Listener {
	return &boundedListener{Listener: on, limits: limits, metrics: metrics, closed: make(chan struct{}), failed: make(chan error),
		room: make(chan struct{}, 1), turn: make(chan struct{}, 1), strangers: list.New()}
}

// Accept returns the next connection that has sent its ClientHello, when it is its turn.
func (l *boundedListener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.acceptAll() })
	for {
		c, wait := l.next()
		if c != nil {
			return c, nil
		}
		if err := l.wait(l.turn, wait); err != nil {
			return nil, err
		}
	}
}

// next returns the connection whose turn it is or, if there is none, when to look again; 0: once there is a signal.
func (l *boundedListener) next() (*connection, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if len(l.greeted) == 0 { // so room may be made for the next one
			signal(l.room)
		}
	}()
	for len(l.greeted) > 0 {
		if wait := l.awaitTurn(); wait > 0 {
			return nil, wait
		}
		c := l.greeted[0]
		l.greeted[0] = nil
		l.greeted = l.greeted[1:]
		if c.gone { // it was closed while it waited
			continue
		}
		if _, ended := peek(c.Conn); ended { // nobody waits for the handshake any more
			c.drop()
			continue
		}
		c.working, c.handedOver, c.before = true, true, c.waited
		l.handshakes++
		return c, 0
	}
	return nil, 0
}

// awaitTurn returns how long to wait until there may be a turn, under the lock.
func (l *boundedListener) awaitTurn() time.Duration {
	if l.handshakes < l.limits.Handshakes {
		return 0
	}
	turn := max(l.limits.Turn, min(2*l.needs, maxTurn))
	now, wait := time.Now(), turn
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		if !c.working {
			continue
		}
		left := turn - (c.keptWaiting(now) - c.before) // of all its waits, or one that sends a byte now and then would never lose it
		if left <= 0 {
			c.loseTurn()
			return 0
		}
		wait = min(wait, left)
	}
	return wait
}

// acceptAll takes connections from the kernel as long as there is room.
func (l *boundedListener) acceptAll() {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.failed <- err: // returned when Accept is called again, which backs off
			case <-l.closed:
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		c := &connection{Conn: accepted, on: l}
		for {
			wait, admitted := l.admit(c)
			if admitted {
				go c.greet()
				break
			}
			if err := l.wait(l.room, wait); err != nil {
				_ = accepted.Close()
				return
			}
		}
	}
}

// wait returns after a signal, or after some time if that is not 0; or with an error for Accept.
func (l *boundedListener) wait(signal chan struct{}, d time.Duration) error {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	failed := l.failed
	if signal != l.turn {
		failed = nil
	}
	select {
	case <-signal:
		return nil
	case <-after:
		return nil
	case err := <-failed:
		return err
	case <-l.closed:
		return net.ErrClosed
	}
}

// admit counts a connection in if there is room, or makes room if it can. Else it returns when to look again.
func (l *boundedListener) admit(c *connection) (wait time.Duration, admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open < l.limits.Connections && l.strangers.Len() < l.limits.Strangers {
		l.open++
		c.place = l.strangers.PushBack(c)
		c.startWaiting(time.Now())
		l.metrics.connections.Set(float64(l.open))
		return 0, true
	}
	now := time.Now()
	if wait = l.tryAgain.Sub(now); wait > 0 {
		return wait, false
	}
	patience := max(l.limits.Patience, min(patienceFactor*l.needs, maxPatience))
	if len(l.greeted) > 0 { // there is work enough: one more could only wait as well
		return patience, false
	}
	idlest, waited := l.idlest(now, patience)
	if wait = patience - waited; wait > 0 || idlest == nil {
		l.tryAgain = now.Add(wait)
		return wait, false
	}
	l.metrics.dropped.Inc()
	idlest.drop()
	return 0, false
}

// idlest returns the stranger that has kept the server waiting longest, and for how long, under the lock. One whose
// bytes have arrived does not keep it waiting: they only were not read yet.
func (l *boundedListener) idlest(now time.Time, patience time.Duration) (idlest *connection, longest time.Duration) {
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*connection)
		if c.pending == 0 {
			continue
		}
		waited := c.keptWaiting(now)
		if waited >= patience && waited > longest && !c.writing {
			if arrived, _ := peek(c.Conn); arrived {
				c.since = now
				continue
			}
		}
		if waited > longest {
			idlest, longest = c, waited
		}
	}
	return idlest, longest
}

// Close ends the listener, and all connections that Accept has not returned.
func (l *boundedListener) Close() error {
	l.end.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	var left []*connection
	l.mu.Lock()
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); !c.handedOver {
			left = append(left, c)
		}
	}
	l.mu.Unlock()
	for _, c := range left {
		_ = c.Close()
	}
	return err
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
