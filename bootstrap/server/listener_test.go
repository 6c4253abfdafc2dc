package server_test

import (
	"io"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// accepted is a result of Accept.
type accepted struct {
	net.Conn
	Err error
}

// door is a listener with limits, and a channel with the results of Accept.
type door struct {
	net.Listener
	registry *prometheus.Registry
	accepts  chan accepted
}

// open starts a listener with limits, which is closed after the spec. Accept is called again as soon as its result is
// received from accepts.
func open(limits server.Limits) *door {
	GinkgoHelper()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	d := &door{registry: prometheus.NewRegistry(), accepts: make(chan accepted)}
	metrics := server.NewMetrics(d.registry)
	d.Listener = server.NewListener(on, limits, metrics)
	go func() {
		defer close(d.accepts)
		for {
			conn, err := d.Accept()
			d.accepts <- accepted{conn, err}
			if err != nil {
				return
			}
		}
	}()
	DeferCleanup(func() {
		_ = d.Close()
		for range d.accepts { // until it is closed
		}
	})
	return d
}

// dial opens a connection and sends words.
func (d *door) dial(words string) net.Conn {
	GinkgoHelper()
	conn, err := net.Dial("tcp", d.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, words)
	Expect(err).NotTo(HaveOccurred())
	return conn
}

// flood opens connections that send nothing, until the spec ends.
func (d *door) flood() {
	stop, ended := make(chan struct{}), make(chan struct{})
	DeferCleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		for {
			conn, err := net.Dial("tcp", d.Addr().String())
			if err != nil {
				return
			}
			defer conn.Close() // when the flood ends
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
}

// next returns the next connection from Accept.
func (d *door) next() net.Conn {
	GinkgoHelper()
	var next accepted
	Eventually(d.accepts).Should(Receive(&next))
	Expect(next.Err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = next.Close() })
	return next.Conn
}

// figure returns a function that reads a metric of the listener.
func (d *door) figure(name string) func() float64 {
	return func() float64 {
		families, err := d.registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			if family.GetName() == "poolboot_config_server_"+name {
				return only(family.Metric)
			}
		}
		return 0
	}
}

func only(metrics []*dto.Metric) float64 {
	return metrics[0].GetGauge().GetValue() + metrics[0].GetCounter().GetValue()
}

// says verifies that the next bytes of a connection are words.
func says(conn net.Conn, words string) {
	GinkgoHelper()
	got := make([]byte, len(words))
	_, err := io.ReadFull(conn, got)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(got)).To(Equal(words))
}

var _ = Describe("The listener", func() {
	const hello = "\x16\x03\x01\x00\x04abcd" // a TLS handshake record with four bytes
	roomy := server.Limits{Connections: 100, Strangers: 50, Patience: time.Hour, Handshakes: 1, Turn: time.Hour}

	It("gives turns in the order in which connections complete their ClientHello, and no turn before that", func() {
		d := open(roomy)
		for range 5 {
			d.dial("")
		}
		half := d.dial(hello[:7])
		first := d.dial(hello)
		says(d.next(), hello)
		Expect(first.Close()).To(Succeed())
		_, err := io.WriteString(half, hello[7:])
		Expect(err).NotTo(HaveOccurred())
		Eventually(d.figure("connections")).Should(Equal(7.0))
		Expect(d.accepts).NotTo(Receive(), "the turn is taken until the server closes the connection")
	})

	It("gives turns to waiting connections one by one", func() {
		d := open(roomy)
		d.dial(hello)
		first := d.next()
		d.dial(hello)
		Consistently(d.accepts, "100ms").ShouldNot(Receive())
		Expect(first.Close()).To(Succeed())
		says(d.next(), hello)
	})

	It("gives the turn of a connection that stops sending to the next one, and leaves it open", func() {
		limits := roomy
		limits.Turn = time.Millisecond
		d := open(limits)
		stalls := d.dial(hello)
		first := d.next()
		says(first, hello)
		d.dial(hello)
		go func() { _, _ = io.Copy(io.Discard, first) }() // as the server waits for the rest of the handshake
		says(d.next(), hello)
		Expect(d.figure("connections")()).To(Equal(2.0))
		_, err := io.WriteString(stalls, "later")
		Expect(err).NotTo(HaveOccurred())
	})

	It("gives the turn of a connection that sends single bytes to the next one", func() {
		limits := roomy
		limits.Turn = 100 * time.Millisecond
		d := open(limits)
		drips := d.dial(hello)
		first := d.next()
		stop, ended := make(chan struct{}), make(chan struct{})
		DeferCleanup(func() { close(stop); <-ended })
		go func() { _, _ = io.Copy(io.Discard, first) }()
		go func() {
			defer close(ended)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					_, _ = io.WriteString(drips, "a")
				}
			}
		}()
		d.dial(hello)
		says(d.next(), hello)
	})

	It("gives the turn of a connection that does not read its answers to the next one, and closes it for others", func() {
		limits := roomy
		limits.Turn = time.Millisecond
		limits.Strangers, limits.Patience = 2, time.Millisecond
		d := open(limits)
		d.dial(hello + "requests that nobody reads yet") // and does not read
		first := d.next()
		says(first, hello)
		go func() {
			for err := error(nil); err == nil; { // as the server answers request after request
				_, err = first.Write(make([]byte, 64<<10))
			}
		}()
		d.dial(hello)
		says(d.next(), hello)
		d.flood()
		Eventually(d.figure("connections_dropped_total")).Should(BeNumerically(">", 0))
		Eventually(func() error {
			_, err := first.Write([]byte("a"))
			return err
		}).Should(MatchError(net.ErrClosed))
	})

	It("closes for others only connections that keep it waiting, and not that of a host that waits for a slow server", func() {
		limits := roomy
		limits.Strangers, limits.Patience, limits.Handshakes = 3, time.Millisecond, 2
		d := open(limits)
		host := d.dial(hello)
		served := d.next() // the server is slow: it does not read more
		d.flood()
		Eventually(d.figure("connections_dropped_total")).Should(BeNumerically(">", 10))
		says(served, hello)
		_, err := io.WriteString(served, "welcome")
		Expect(err).NotTo(HaveOccurred())
		says(host, "welcome")
	})

	It("closes no connection for others while connections wait for a turn, because another one would only wait too", func() {
		limits := roomy
		limits.Strangers, limits.Patience = 3, time.Millisecond
		d := open(limits)
		d.dial(hello)
		first := d.next()
		d.dial(hello)
		d.dial("")
		Eventually(d.figure("connections")).Should(Equal(3.0))
		d.flood()
		Consistently(d.figure("connections_dropped_total"), "100ms").Should(BeZero())
		Expect(first.Close()).To(Succeed())
		says(d.next(), hello)
		Eventually(d.figure("connections_dropped_total")).Should(BeNumerically(">", 10))
	})

	It("makes room as soon as no connection waits for a turn, even if none was closed", func() {
		limits := roomy
		limits.Strangers, limits.Patience, limits.Turn = 3, 3*time.Second, time.Millisecond
		d := open(limits)
		d.dial("")
		d.dial(hello)
		first := d.next() // the server is slow: it does not read more
		d.dial(hello)
		Eventually(d.figure("connections")).Should(Equal(3.0))
		Consistently(d.figure("connections_dropped_total"), limits.Patience).Should(BeZero(), "nobody needs room")
		d.dial("") // waits, because another connection waits for its turn
		Consistently(d.figure("connections_dropped_total"), "100ms").Should(BeZero())
		says(first, hello)
		go func() { _, _ = io.Copy(io.Discard, first) }()
		says(d.next(), hello)
		Eventually(d.figure("connections_dropped_total"), limits.Patience/2).Should(Equal(1.0))
	})

	It("gives no turn to a connection that its peer has closed meanwhile", func() {
		d := open(roomy)
		d.dial(hello)
		first := d.next()
		Expect(d.dial(hello).Close()).To(Succeed())
		last := hello[:5] + "last"
		d.dial(last)
		Eventually(d.figure("connections")).Should(Equal(3.0))
		Expect(first.Close()).To(Succeed())
		says(d.next(), last)
	})

	It("closes the connections that Accept has not returned when it is closed", func() {
		d := open(roomy)
		silent := d.dial("")
		d.dial(hello)
		d.next()
		waiting := d.dial(hello)
		Eventually(d.figure("connections")).Should(Equal(3.0))
		Expect(d.Close()).To(Succeed())
		Eventually(d.figure("connections")).Should(Equal(1.0), "the accepted one")
		for _, conn := range []net.Conn{silent, waiting} {
			_, err := conn.Read(make([]byte, 1))
			Expect(err).To(HaveOccurred())
		}
		Eventually(d.accepts).Should(Receive(HaveField("Err", MatchError(net.ErrClosed))))
	})
})
