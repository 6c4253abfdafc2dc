package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

// Addresses from which the tests connect.
const (
	localAddress    = "127.0.0.1"
	neighborAddress = "127.0.0.2"
)

// dialFrom opens a TCP connection from an address.
func dialFrom(address string, to net.Addr) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return dialer.Dial("tcp", to.String())
}

// door is a listener with limits, and a channel with the connections that it accepts.
type door struct {
	net.Listener
	registry *prometheus.Registry
	accepts  chan net.Conn
}

// open starts a listener with limits, which is closed after the spec.
func open(limits server.Limits) *door {
	GinkgoHelper()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	d := &door{registry: prometheus.NewRegistry(), accepts: make(chan net.Conn, 100)}
	d.Listener = server.NewListener(on, limits, server.NewMetrics(d.registry))
	go func() {
		defer close(d.accepts)
		for {
			conn, err := d.Accept()
			if err != nil {
				return
			}
			d.accepts <- conn
		}
	}()
	DeferCleanup(func() {
		_ = d.Close()
		for conn := range d.accepts {
			_ = conn.Close()
		}
	})
	return d
}

// connect opens a connection from an address, and returns both of its ends.
func (d *door) connect(address string) (client, accepted net.Conn) {
	GinkgoHelper()
	client = d.dial(address)
	Eventually(d.accepts).Should(Receive(&accepted))
	DeferCleanup(func() { _ = accepted.Close() })
	return client, accepted
}

// dial opens a connection from an address.
func (d *door) dial(address string) net.Conn {
	GinkgoHelper()
	client, err := dialFrom(address, d.Addr())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = client.Close() })
	return client
}

// send opens a connection from an address and sends a byte. It returns the accepted end, and a channel that gets the
// result when that is read.
func (d *door) send(address string) (net.Conn, chan error) {
	GinkgoHelper()
	client, accepted := d.connect(address)
	_, err := io.WriteString(client, "a")
	Expect(err).NotTo(HaveOccurred())
	read := make(chan error, 1)
	go func() {
		_, err := accepted.Read(make([]byte, 8))
		read <- err
	}()
	return accepted, read
}

// figure returns a function that reads a metric of the listener.
func (d *door) figure(name string) func() float64 {
	return func() float64 { return scrape.Sum(d.registry, "poolboot_config_server_"+name, nil) }
}

var _ = Describe("The listener", func() {
	const pause = 100 * time.Millisecond
	roomy := server.Limits{Connections: 100, Turns: 2}

	It("has a limit of connections: others wait until one is closed", func() {
		d := open(server.Limits{Connections: 2, Turns: 2})
		_, first := d.connect(localAddress)
		d.connect(neighborAddress)
		d.dial(localAddress)
		Consistently(d.accepts, pause).ShouldNot(Receive())
		Expect(first.Close()).To(Succeed())
		Expect(first.Close()).NotTo(Succeed(), "and counts once")
		Eventually(d.accepts).Should(Receive())
		d.dial(localAddress)
		Consistently(d.accepts, pause).ShouldNot(Receive())
	})

	It("closes connections of an address that has half of all, and accepts those of others", func() {
		d := open(server.Limits{Connections: 4, Turns: 2})
		_, first := d.connect(neighborAddress)
		d.connect(neighborAddress)
		_, err := d.dial(neighborAddress).Read(make([]byte, 1))
		Expect(err).To(HaveOccurred())
		Expect(d.figure("connections_dropped_total")()).To(Equal(1.0))
		d.connect(localAddress)
		Expect(first.Close()).To(Succeed())
		d.connect(neighborAddress)
		Expect(d.figure("connections")()).To(Equal(3.0))
	})

	It("lets connections wait for their turn, and those that send nothing take none", func() {
		d := open(roomy)
		d.connect(localAddress)
		first, read := d.send(localAddress)
		Eventually(read).Should(Receive(Succeed()))
		_, read = d.send(localAddress)
		Consistently(read, pause).ShouldNot(Receive())
		Expect(first.Close()).To(Succeed())
		Eventually(read).Should(Receive(Succeed()))
	})

	It("gives one address half of the turns", func() {
		d := open(server.Limits{Connections: 100, Turns: 4})
		for range 2 {
			_, read := d.send(neighborAddress)
			Eventually(read).Should(Receive(Succeed()))
		}
		_, neighbor := d.send(neighborAddress)
		_, host := d.send(localAddress)
		Eventually(host).Should(Receive(Succeed()))
		Consistently(neighbor, pause).ShouldNot(Receive())
	})

	It("takes the turn of a connection back that neither sends its request nor reads its answer, and leaves it open", func() {
		d := open(roomy)
		first, read := d.send(localAddress)
		Eventually(read).Should(Receive(Succeed()))
		second, read := d.send(localAddress)
		Eventually(read, 5*time.Second).Should(Receive(Succeed()))
		for _, conn := range []net.Conn{first, second} {
			_, err := conn.Write([]byte("a"))
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("starts the time limit of a connection with its turn", func() {
		d := open(roomy)
		first, read := d.send(localAddress)
		Eventually(read).Should(Receive(Succeed()))
		second, read := d.send(localAddress)
		Expect(second.SetDeadline(time.Now().Add(pause))).To(Succeed())
		Consistently(read, 2*pause).ShouldNot(Receive())
		Expect(first.Close()).To(Succeed())
		Eventually(read).Should(Receive(Succeed()))
		_, err := second.Write([]byte("a"))
		Expect(err).NotTo(HaveOccurred())
	})

	It("ends the wait of a connection that is closed, which takes no turn", func() {
		d := open(roomy)
		first, read := d.send(localAddress)
		Eventually(read).Should(Receive(Succeed()))
		second, read := d.send(localAddress)
		Expect(second.Close()).To(Succeed())
		Eventually(read).Should(Receive(MatchError(net.ErrClosed)))
		Expect(first.Close()).To(Succeed())
		for range 3 {
			next, read := d.send(localAddress)
			Eventually(read).Should(Receive(Succeed()))
			Expect(next.Close()).To(Succeed())
		}
		Eventually(d.figure("connections")).Should(BeZero())
	})

	It("takes the turn of a host back before its request is held", func() {
		limits := server.DefaultLimits
		limits.Turns = 2
		s, w := attacked(limits, func(o *server.Options) { o.Wait = time.Minute })
		w.set(func() { clear(w.overlays) })
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		for range 3 {
			go func() {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+configPath, nil)
				if err == nil {
					request.Header.Set("Authorization", "Bearer "+token)
					_, _ = s.Client().Do(request)
				}
			}()
		}
		Eventually(func() float64 { return figure(s, "poolboot_config_server_boots_waiting", nil) }).Should(Equal(3.0))
	})
})
