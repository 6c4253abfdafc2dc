package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// connection is a connection that counts against the limits of its listener.
type connection struct {
	net.Conn
	listener      *boundedListener
	authenticated atomic.Bool // it is a host's, and its waits are not measured
	closed        sync.Once
	hello         *helloBuffer // what was read before the TLS handshake; only Read uses it after readClientHello

	// The lock of the listener protects the following fields.
	element          *list.Element // in the list of strangers; nil if it is not a stranger
	closing          bool          // closed, or about to be closed
	accepted         bool          // Accept has returned it, or is about to return it
	hasTurn          bool          // it has a turn
	answered         bool          // a request was answered
	received         int           // bytes from a stranger before the first answer
	agentOf          types.UID     // the PoolbootConfig whose certificate it has sent; empty for hosts with a token
	pending          int           // reads and writes in progress: the server waits for the peer
	waitStart        time.Time     // start of the current wait
	waited           time.Duration // total time of the previous waits
	waitedBeforeTurn time.Duration // value of waited when the turn began
	writing          bool          // a write is in progress
}

// helloBuffer is the buffer for the first bytes of a connection: its ClientHello.
type helloBuffer struct {
	bytes  [4 << 10]byte // a current ClientHello has about 1.5 KiB
	unread []byte
}

var helloBuffers = sync.Pool{New: func() any { return &helloBuffer{} }}

// maxFirstBytes is the maximum number of bytes that a stranger sends until its first request is answered: a
// ClientHello, the certificates of a client, and the header of a request. Without it, the TLS library would collect
// more.
const maxFirstBytes = 64 << 10

var errFirstRequestTooLong = errors.New("the handshake and the first request are too long")

// maxAgentConnections is the maximum number of connections with the certificate of one host that are not strangers, so
// that a host that is controlled by an attacker can't take all connections. Its other connections remain strangers.
const maxAgentConnections = 2

// averageWindow determines the weight of a host in the moving average of how long hosts keep the server waiting: each
// new host counts 1/averageWindow.
const averageWindow = 16

const (
	recordHeader    = 5  // length of the header of a TLS record: type, version, length
	handshakeRecord = 22 // type of a TLS record
)

// isHelloComplete reports whether the bytes contain the whole first TLS record, or cannot be a handshake. The TLS
// library refuses the latter.
func isHelloComplete(first []byte) bool {
	if len(first) == 0 || first[0] != handshakeRecord {
		return len(first) > 0
	}
	return len(first) >= recordHeader && len(first) >= recordHeader+int(binary.BigEndian.Uint16(first[3:]))
}

// readClientHello reads the ClientHello and adds the connection to the queue for turns.
func (c *connection) readClientHello() {
	hello := helloBuffers.Get().(*helloBuffer)
	err := c.SetReadDeadline(time.Now().Add(readHeaderTimeout))
	n := 0
	for err == nil && n < len(hello.bytes) && !isHelloComplete(hello.bytes[:n]) {
		var read int
		read, err = c.Conn.Read(hello.bytes[n:])
		n += read
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		helloBuffers.Put(hello)
		_ = c.Close()
		return
	}
	hello.unread = hello.bytes[:n]
	c.hello = hello
	l := c.listener
	l.mu.Lock()
	c.stopWaiting()
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	signal(l.turnSignal)
	select {
	case <-l.closed: // Accept is not called again
		_ = c.Close()
	default:
	}
}

// Read reads from the connection. For a stranger, it measures how long the server waits.
func (c *connection) Read(p []byte) (int, error) {
	if c.hello != nil {
		n := copy(p, c.hello.unread)
		if c.hello.unread = c.hello.unread[n:]; len(c.hello.unread) == 0 {
			helloBuffers.Put(c.hello)
			c.hello = nil
		}
		return n, nil
	}
	if c.authenticated.Load() {
		return c.Conn.Read(p)
	}
	c.listener.mu.Lock()
	c.startWaiting(time.Now())
	c.listener.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.listener.mu.Lock()
	c.stopWaiting()
	c.received += n
	tooLong := !c.answered && c.received > maxFirstBytes
	c.listener.mu.Unlock()
	if tooLong {
		return 0, errFirstRequestTooLong
	}
	return n, err
}

// Write writes to the connection. For a stranger, it measures how long the server waits: all buffers are full if a
// stranger does not read its answers.
func (c *connection) Write(p []byte) (int, error) {
	if c.authenticated.Load() {
		return c.Conn.Write(p)
	}
	c.listener.mu.Lock()
	c.startWaiting(time.Now())
	c.writing = true
	c.listener.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.listener.mu.Lock()
	c.writing = false
	c.stopWaiting()
	c.listener.mu.Unlock()
	return n, err
}

// startWaiting and stopWaiting measure how long a stranger keeps the server waiting. A read and a write can wait at the
// same time. The caller holds the lock.
func (c *connection) startWaiting(now time.Time) {
	if c.pending == 0 {
		c.waitStart = now
	}
	c.pending++
}

func (c *connection) stopWaiting() {
	if c.pending--; c.pending == 0 {
		c.waited += time.Since(c.waitStart)
	}
}

// waitTime returns how long a stranger has kept the server waiting in total. The caller holds the lock.
func (c *connection) waitTime(now time.Time) time.Duration {
	if c.pending == 0 {
		return c.waited
	}
	return c.waited + now.Sub(c.waitStart)
}

// Close closes the connection and makes room for another.
func (c *connection) Close() error {
	c.closed.Do(func() {
		l := c.listener
		l.mu.Lock()
		c.markClosed()
		l.open--
		if c.agentOf != "" {
			if l.agents[c.agentOf]--; l.agents[c.agentOf] == 0 {
				delete(l.agents, c.agentOf)
			}
		}
		l.metrics.connections.Set(float64(l.open))
		l.mu.Unlock()
		signal(l.roomSignal)
	})
	return c.Conn.Close()
}

// closeLater removes a connection from the strangers immediately, and closes it as soon as the lock is free. The caller
// holds the lock.
func (c *connection) closeLater() {
	c.markClosed()
	go c.Close()
}

// markClosed removes a connection that is closed from the strangers. The caller holds the lock.
func (c *connection) markClosed() {
	c.closing = true
	c.leaveStrangers()
}

// leaveStrangers removes a connection from the strangers and ends its turn. The caller holds the lock.
func (c *connection) leaveStrangers() {
	c.endTurn()
	if c.element != nil {
		c.listener.strangers.Remove(c.element)
		c.element = nil
	}
}

// endTurn ends the turn of a connection, if it has one, for the next connection in the queue. The caller holds the
// lock.
func (c *connection) endTurn() {
	if c.hasTurn {
		c.hasTurn = false
		c.listener.handshakes--
		signal(c.listener.turnSignal)
	}
}

// peek reports whether a connection has unread bytes, and whether its peer has closed it. It reads nothing.
func peek(conn net.Conn) (hasData, closed bool) {
	syscallConn, ok := conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := syscallConn.SyscallConn()
	if err != nil {
		return false, false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		hasData, closed = err == nil && n > 0, err == nil && n == 0
	})
	return hasData, closed
}

// connectionKey is the key of the *connection in the context of a request.
type connectionKey struct{}

// withConnection is the ConnContext of the HTTP server: it adds the *connection to the context of its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if tlsConn, ok := conn.(*tls.Conn); ok {
		conn = tlsConn.NetConn()
	}
	if limited, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, limited)
	}
	return ctx
}

// endRequestTurn ends the turn of the connection of a request. A turn is for a handshake and one request: a stranger
// sends further requests without a turn.
func endRequestTurn(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.authenticated.Load() {
		return
	}
	c.listener.mu.Lock()
	c.answered = true
	c.endTurn()
	c.listener.mu.Unlock()
}

// markAuthenticated records that the connection of a request has sent a valid token: it is a host's, and no longer a
// stranger.
func markAuthenticated(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.authenticated.Swap(true) {
		return
	}
	c.listener.mu.Lock()
	c.listener.averageWait += (c.waited - c.listener.averageWait) / averageWindow
	c.leaveStrangers()
	c.listener.mu.Unlock()
	signal(c.listener.roomSignal)
}

// markAgent records that the connection of a request has sent the certificate of a host's kubelet: it is no longer a
// stranger, unless the host has maxAgentConnections others. It does not count for the average, because a running host
// sends such requests at any time: with slow ones, it could increase the patience with strangers.
func markAgent(ctx context.Context, config types.UID) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.authenticated.Load() {
		return
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closing || l.agents[config] >= maxAgentConnections {
		return
	}
	l.agents[config]++
	c.agentOf = config
	c.authenticated.Store(true)
	c.leaveStrangers()
	signal(l.roomSignal)
}

// strangerWriteBuffer is the size of the send buffer of the kernel for an answer that strangers get, in bytes. Without
// it, each connection that reads slowly could fill megabytes.
const strangerWriteBuffer = 64 << 10

// limitWriteBuffer limits the send buffer of the connection of a request.
func limitWriteBuffer(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.authenticated.Load() {
		return
	}
	if buffered, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		_ = buffered.SetWriteBuffer(strangerWriteBuffer)
	}
}
