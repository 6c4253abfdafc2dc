package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// resident returns the resident memory of the program, in MiB.
func (s *configServer) resident() float64 {
	GinkgoHelper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.session.Command.Process.Pid))
	Expect(err).NotTo(HaveOccurred())
	kilobytes := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	Expect(kilobytes).NotTo(BeNil())
	n, err := strconv.ParseFloat(string(kilobytes[1]), 64)
	Expect(err).NotTo(HaveOccurred())
	return n / 1024
}

// figure returns the value of a metric of the program.
func (s *configServer) figure(name string) float64 {
	GinkgoHelper()
	all, err := text(s.metrics + "/metrics")
	Expect(err).NotTo(HaveOccurred())
	line := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(all)
	Expect(line).NotTo(BeNil(), name)
	value, err := strconv.ParseFloat(line[1], 64)
	Expect(err).NotTo(HaveOccurred())
	return value
}

var _ = Describe("A flood from one address", func() {
	It("uses limited memory, and prevents no boot", func(ctx SpecContext) {
		s, m := serve(), newMachine(ctx, "in-a-flood")
		m.prepare(ctx)
		host := func() (int, error) {
			code, _, err := s.send(m.path(), m.token)
			return code, err
		}
		Eventually(host).Should(Equal(http.StatusOK))
		quiet, address := s.resident(), s.url[len("https://"):]

		const silent, secured = 4500, 1000 // together more than one address can have
		neighbor := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		var attackers sync.WaitGroup
		stop := make(chan struct{})
		attack := func(count int, open func() (net.Conn, error)) {
			for range 50 {
				attackers.Go(func() {
					for range count / 50 {
						if conn, err := open(); err == nil {
							attackers.Go(func() { <-stop; _ = conn.Close() })
						}
					}
				})
			}
		}
		attack(silent, func() (net.Conn, error) { return neighbor.Dial("tcp", address) })
		attack(secured, func() (net.Conn, error) {
			conn, err := tls.DialWithDialer(neighbor, "tcp", address, hostClient().Transport.(*http.Transport).TLSClientConfig)
			if err == nil {
				_, err = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")) // the most memory
			}
			return conn, err
		})
		most, connections, slowest := 0.0, 0.0, time.Duration(0)
		for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); {
			start := time.Now()
			Eventually(host).WithPolling(200 * time.Millisecond).Should(Equal(http.StatusOK)) // retries as Ignition does
			slowest = max(slowest, time.Since(start))
			most, connections = max(most, s.resident()), max(connections, s.figure("poolboot_config_server_connections"))
		}
		close(stop)
		attackers.Wait()
		AddReportEntry("flood", fmt.Sprintf("%.0f connections at most, %.0f dropped; memory %.0f MiB before, %.0f MiB at most; slowest answer to a host %s",
			connections, s.figure("poolboot_config_server_connections_dropped_total"), quiet, most, slowest.Round(time.Millisecond)))
		Expect(connections).To(BeNumerically("<=", server.DefaultLimits.Connections/2+10), "the neighbor, and the host")
		Expect(connections).To(BeNumerically(">", server.DefaultLimits.Connections/4), "the flood reached the server")
		Expect(most-quiet).To(BeNumerically("<", 150), "MiB")
	})
})
