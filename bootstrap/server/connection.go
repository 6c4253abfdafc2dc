package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connection is a connection that counts against the limits of its listener.
type connection struct {
	net.Conn
	listener  *limitedListener
	address   netip.Addr
	source    *source
	started   bool // has had its turn; only Read uses it
	hasTurn   atomic.Bool
	closeOnce sync.Once
	closed    chan struct{}
}

// Read reads from the connection. The first bytes wait for a turn, so a connection that sends nothing takes none.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.started {
		c.started = true
		if err := c.takeTurn(); err != nil {
			return 0, err
		}
	}
	return n, err
}

// maxTurn is how long a turn lasts at most. A host needs a fraction of that, unless it downloads an agent. A slow
// client keeps its connection until the time limits of the HTTP server close it, and delays nobody.
const maxTurn = 2 * time.Second

// takeTurn waits for a turn, in the order in which connections ask for it. The time limit of a handshake starts again.
func (c *connection) takeTurn() error {
	select {
	case c.source.turns <- struct{}{}:
	case <-c.closed:
		return net.ErrClosed
	}
	select {
	case c.listener.turns <- struct{}{}:
	case <-c.closed:
		<-c.source.turns
		return net.ErrClosed
	}
	c.hasTurn.Store(true)
	time.AfterFunc(maxTurn, c.endTurn)
	err := c.SetDeadline(time.Now().Add(readHeaderTimeout))
	if err != nil { // it was closed meanwhile, perhaps before it had the turn
		c.endTurn()
	}
	return err
}

// endTurn gives the turn of a connection, if it has one, to the next.
func (c *connection) endTurn() {
	if c.hasTurn.Swap(false) {
		<-c.source.turns
		<-c.listener.turns
	}
}

// Close closes the connection and makes room for another.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.closeOnce.Do(func() {
		close(c.closed)
		c.endTurn()
		c.listener.uncount(c)
	})
	return err
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

// endTurn ends the turn of the connection of a request, which has a valid token or certificate, or is answered.
func endTurn(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.endTurn()
	}
}

// programWriteBuffer is the size of the send buffer of the kernel for an agent, in bytes, because anyone can download
// agents. Without it, each connection that reads slowly could fill megabytes.
const programWriteBuffer = 64 << 10

// limitWriteBuffer limits the send buffer of the connection of a request.
func limitWriteBuffer(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		if buffered, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
			_ = buffered.SetWriteBuffer(programWriteBuffer)
		}
	}
}
