package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// connection is one that counts.
type connection struct {
	net.Conn
	on     *boundedListener
	known  atomic.Bool // it is a host's, which nothing more is noted of
	closed sync.Once
	hello  *greeting // what was read of it before TLS; only who reads uses it

	// Under the listener's lock.
	place      *list.Element // among the strangers; nil once it is none
	gone       bool
	handedOver bool // Accept has returned it, or is about to
	working    bool // it has its turn
	pending    int  // reads and writes in which the server waits for the peer,
	since      time.Time
	waited     time.Duration // and has waited before,
	before     time.Duration // of that before it got its turn
	writing    bool          // one of them is a write
}

// greeting is the first bytes of a connection.
type greeting struct {
	bytes  [4 << 10]byte // a ClientHello of today has 1.5 KiB
	unread []byte
}

var greetings = sync.Pool{New: func() any { return &greeting{} }}

// hostsRemembered is of how many hosts what they need is an average, the last ones counting most.
const hostsRemembered = 16

const (
	recordHeader    = 5 // of TLS: type, version, length
	handshakeRecord = 22
)

// complete tells whether the bytes hold the first record of TLS, or something that is none and that TLS refuses.
func complete(first []byte) bool {
	if len(first) == 0 || first[0] != handshakeRecord {
		return len(first) > 0
	}
	return len(first) >= recordHeader && len(first) >= recordHeader+int(binary.BigEndian.Uint16(first[3:]))
}

// greet reads the ClientHello, and has the connection wait for its turn.
func (c *connection) greet() {
	hello := greetings.Get().(*greeting)
	err := c.SetReadDeadline(time.Now().Add(readHeaderTimeout))
	n := 0
	for err == nil && n < len(hello.bytes) && !complete(hello.bytes[:n]) {
		var read int
		read, err = c.Conn.Read(hello.bytes[n:])
		n += read
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		greetings.Put(hello)
		_ = c.Close()
		return
	}
	hello.unread = hello.bytes[:n]
	c.hello = hello
	l := c.on
	l.mu.Lock()
	c.stopWaiting()
	l.greeted = append(l.greeted, c)
	l.mu.Unlock()
	signal(l.turn)
	select {
	case <-l.closed: // nobody calls Accept any more
		_ = c.Close()
	default:
	}
}

// Read reads, and notes how long a stranger keeps the server waiting.
func (c *connection) Read(p []byte) (int, error) {
	if c.hello != nil {
		n := copy(p, c.hello.unread)
		if c.hello.unread = c.hello.unread[n:]; len(c.hello.unread) == 0 {
			greetings.Put(c.hello)
			c.hello = nil
		}
		return n, nil
	}
	if c.known.Load() {
		return c.Conn.Read(p)
	}
	c.on.mu.Lock()
	c.startWaiting(time.Now())
	c.on.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.on.mu.Lock()
	c.stopWaiting()
	c.on.mu.Unlock()
	return n, err
}

// Write writes, and notes how long a stranger keeps the server waiting: one that reads no answers fills all buffers.
func (c *connection) Write(p []byte) (int, error) {
	if c.known.Load() {
		return c.Conn.Write(p)
	}
	c.on.mu.Lock()
	c.startWaiting(time.Now())
	c.writing = true
	c.on.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.on.mu.Lock()
	c.writing = false
	c.stopWaiting()
	c.on.mu.Unlock()
	return n, err
}

// startWaiting and stopWaiting note how long a stranger keeps the server waiting, under the lock. A read and a write
// may wait at once.
func (c *connection) startWaiting(now time.Time) {
	if c.pending == 0 {
		c.since = now
	}
	c.pending++
}

func (c *connection) stopWaiting() {
	if c.pending--; c.pending == 0 {
		c.waited += time.Since(c.since)
	}
}

// keptWaiting returns how long a stranger has kept the server waiting, under the lock.
func (c *connection) keptWaiting(now time.Time) time.Duration {
	if c.pending == 0 {
		return c.waited
	}
	return c.waited + now.Sub(c.since)
}

// Close closes the connection and makes room.
func (c *connection) Close() error {
	c.closed.Do(func() {
		l := c.on
		l.mu.Lock()
		c.leave()
		l.open--
		l.metrics.connections.Set(float64(l.open))
		l.mu.Unlock()
		signal(l.room)
	})
	return c.Conn.Close()
}

// drop closes a connection, under the lock: it is off the strangers at once, and closed as soon as the lock is free.
func (c *connection) drop() {
	c.leave()
	go c.Close()
}

// leave takes a connection that is closed off the strangers, under the lock.
func (c *connection) leave() {
	c.gone = true
	c.noStranger()
}

// noStranger takes a connection off the strangers, under the lock.
func (c *connection) noStranger() {
	c.loseTurn()
	if c.place != nil {
		c.on.strangers.Remove(c.place)
		c.place = nil
	}
}

// loseTurn gives the turn of a connection to the next, under the lock.
func (c *connection) loseTurn() {
	if c.working {
		c.working = false
		c.on.handshakes--
		signal(c.on.turn)
	}
}

// peek tells whether bytes of a connection have arrived that nobody has read, or its end.
func peek(conn net.Conn) (arrived, ended bool) {
	system, ok := conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return false, false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		arrived, ended = err == nil && n > 0, err == nil && n == 0
	})
	return arrived, ended
}

// connectionKey is where the context of a request has its *connection.
type connectionKey struct{}

// withConnection is an http.Server's ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if counted, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, counted)
	}
	return ctx
}

// answered notes that a request has its answer. A turn is for a handshake and one request: a stranger that goes on to
// ask has no more.
func answered(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.known.Load() {
		return
	}
	c.on.mu.Lock()
	c.loseTurn()
	c.on.mu.Unlock()
}

// showedToken notes that the connection of a request is a host's.
func showedToken(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.known.Swap(true) {
		return
	}
	c.on.mu.Lock()
	c.on.needs += (c.waited - c.on.needs) / hostsRemembered
	c.noStranger()
	c.on.mu.Unlock()
	signal(c.on.room)
}
