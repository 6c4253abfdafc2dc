package server

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("A connection", func() {
	var l *boundedListener
	BeforeEach(func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		l = NewListener(listener, DefaultLimits, NewMetrics(prometheus.NewRegistry())).(*boundedListener)
		DeferCleanup(l.Close)
	})
	// accept returns a connection whose client sends without end, and its context.
	accept := func() (*connection, context.Context) {
		GinkgoHelper()
		client, err := net.Dial("tcp", l.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		go func() {
			for {
				if _, err := client.Write(make([]byte, 4<<10)); err != nil {
					return
				}
			}
		}()
		DeferCleanup(client.Close)
		accepted, err := l.Accept()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = accepted.Close() })
		Expect(accepted.SetDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
		return accepted.(*connection), context.WithValue(context.Background(), connectionKey{}, accepted)
	}
	read := func(c *connection, limit int) (total int, err error) {
		for total < limit && err == nil {
			var n int
			n, err = c.Read(make([]byte, 4<<10))
			total += n
		}
		return total, err
	}

	It("of a stranger ends if the handshake and the first request are too long", func() {
		c, _ := accept()
		total, err := read(c, 1<<20)
		Expect(err).To(MatchError(errFirstRequestTooLong))
		Expect(total).To(BeNumerically("<=", maxFirstBytes+4<<10))
	})

	It("does not end after the first answer, or once it is that of a host", func() {
		for _, know := range []func(context.Context){endRequestTurn, markAuthenticated, func(ctx context.Context) { markAgent(ctx, "machine-9") }} {
			c, ctx := accept()
			know(ctx)
			Expect(read(c, 1<<20)).To(BeNumerically(">=", 1<<20))
		}
	})

	It("with the certificate of a host is no stranger, as long as the host has few of them", func() {
		var connections []*connection
		for range maxAgentConnections + 2 {
			c, ctx := accept()
			for range 3 { // requests
				markAgent(ctx, "machine-9")
			}
			connections = append(connections, c)
		}
		for i, c := range connections {
			Expect(c.authenticated.Load()).To(Equal(i < maxAgentConnections))
		}
		other, ctx := accept()
		markAgent(ctx, "machine-8")
		Expect(other.authenticated.Load()).To(BeTrue())
		Expect(l.averageWait).To(BeZero(), "running hosts do not increase the patience")

		By("making room when one is closed")
		Expect(connections[0].Close()).To(Succeed())
		Expect(connections[0].Close()).NotTo(Succeed()) // counts once
		Expect(l.agents).To(Equal(map[types.UID]int{"machine-9": maxAgentConnections - 1, "machine-8": 1}))
		c, ctx := accept()
		markAgent(ctx, "machine-9")
		Expect(c.authenticated.Load()).To(BeTrue())
		for _, c := range append(connections, c, other) {
			_ = c.Close()
		}
		Expect(l.agents).To(BeEmpty())
		Expect(l.strangers.Len()).To(BeZero())
		Expect(l.open).To(BeZero())
		markAgent(ctx, "machine-9")
		Expect(l.agents).To(BeEmpty(), "the connection is closed")
	})
})
