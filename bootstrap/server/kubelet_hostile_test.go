package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// joined adds a running host to a world: machine-9, whose Node is edge-9. It returns the path for its agent.
func (w *world) joined(ca *loopback.CA, rendered string) string {
	GinkgoHelper()
	const id = "9f0c1c1e-5f0a-4c55-8f0e-000000000009"
	w.addRecord(id, "machine-9", "")
	w.inState("machine-9", bootstrapv1.TokenStateRevoked)
	w.assign("machine-9", "edge-9", rendered, ca.PEM())
	return "/update/default/machine-9/" + id
}

// securedWith opens a TLS connection from the address of a neighbor, with a client certificate, and sends a text.
func (s *site) securedWith(certificate tls.Certificate, text string) (*tls.Conn, error) {
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	plain, err := dialFrom(neighborAddress, s.Listener.Addr())
	if err != nil {
		return nil, err
	}
	config.ServerName = "example.com" // in the certificate of httptest
	conn := tls.Client(plain, config)
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

var _ = Describe("An attacker with root on a running host", func() {
	limits := server.Limits{Connections: 40, Turns: 10}
	var (
		s    *site
		w    *world
		ca   *loopback.CA
		path string // for the agent of machine-9
	)
	BeforeEach(func() {
		s, w = attacked(limits, func(o *server.Options) { o.Wait = 3 * time.Second })
		ca = newCA()
		path = w.joined(ca, w.renderedNames()[0].Name)
	})

	It("cannot keep other hosts from booting with requests for its own registration, which nothing answers", func() {
		certificate := kubelet(ca, "edge-9")
		s, path := s, path // the attack can outlast this spec for a moment
		var ended atomic.Bool
		DeferCleanup(func() { ended.Store(true) })
		for range limits.Connections {
			go func() {
				for !ended.Load() {
					conn, err := s.securedWith(certificate, "POST "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
					if err != nil {
						continue // the address has too many connections
					}
					_, _ = io.Copy(io.Discard, conn) // until the server closes it
					_ = conn.Close()
				}
			}()
		}
		Eventually(w.registrationRequests).Should(Equal(1))
		Eventually(func() float64 { return figure(s, "poolboot_config_server_connections", nil) }).Should(BeNumerically(">=", limits.Connections/2))
		for range 5 {
			Eventually(s.bootOnce).WithTimeout(30 * time.Second).Should(BeNumerically("<", 10*time.Second))
		}
		Expect(w.registrationRequests()).To(Equal(1), "one write, however many requests")
	})

	It("cannot keep other hosts from booting with connections that have shown its certificate", func() {
		certificate := kubelet(ca, "edge-9")
		for range 60 {
			if conn, err := s.securedWith(certificate, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err == nil {
				DeferCleanup(conn.Close)
				_, _ = conn.Read(make([]byte, 4<<10))
			}
		}
		Expect(figure(s, "poolboot_config_server_connections", nil)).To(BeNumerically("==", limits.Connections/2))
		_, err := s.bootOnce()
		Expect(err).NotTo(HaveOccurred())
	})

	It("cannot make the server wait for a body", func() {
		for _, request := range []string{"Content-Length: 1000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", "Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"} {
			conn, err := s.securedWith(kubelet(ca, "edge-9"), "POST "+path+" HTTP/1.1\r\nHost: a\r\n"+request)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(conn.Close)
			Expect(conn.SetReadDeadline(time.Now().Add(5 * time.Second))).To(Succeed())
			answer, err := io.ReadAll(conn)
			Expect(err).NotTo(HaveOccurred(), request)
			Expect(string(answer)).To(HavePrefix("HTTP/1.1 413"), request)
		}
		Expect(w.registrationRequests()).To(BeZero())
	})

	It("can read what its own host should run, and nothing of any other host", func() {
		attacker := s.with(kubelet(ca, "edge-9"))
		w.assign("machine-0", "edge-7", w.renderedNames()[0].Name, ca.PEM())
		for target, code := range map[string]int{
			path:       http.StatusOK,
			updatePath: http.StatusForbidden,
			"/update/default/machine-0/9f0c1c1e-5f0a-4c55-8f0e-000000000009": http.StatusServiceUnavailable,
			"/update/other/machine-9/9f0c1c1e-5f0a-4c55-8f0e-000000000009":   http.StatusServiceUnavailable,
			configPath: http.StatusUnauthorized,
			s.rendered: http.StatusForbidden,
		} {
			response, body := s.sendBy(attacker, http.MethodGet, target, "", nil)
			Expect(response.StatusCode).To(Equal(code), target+": "+string(body))
		}
	})
})

var _ = Describe("A client that sends many certificates", func() {
	It("is refused in the handshake, and so are many bytes", func() {
		s, w := attacked(server.DefaultLimits)
		ca := newCA()
		path := w.joined(ca, w.renderedNames()[0].Name)
		for _, count := range []int{4, 5, 40, 400} {
			certificate := kubelet(ca, "edge-9")
			for range count - 1 {
				certificate.Certificate = append(certificate.Certificate, certificate.Certificate[0])
			}
			answer, err := func() (string, error) {
				conn, err := s.securedWith(certificate, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				if err != nil {
					return "", err
				}
				defer conn.Close()
				answer, err := io.ReadAll(conn)
				return string(answer), err
			}()
			if count <= 4 {
				Expect(err).NotTo(HaveOccurred())
				Expect(answer).To(HavePrefix("HTTP/1.1 200"))
			} else {
				Expect(err).To(HaveOccurred(), fmt.Sprint(count))
				Expect(answer).To(BeEmpty())
			}
		}
	})
})
