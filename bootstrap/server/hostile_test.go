package server_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// attacked returns a server with limits, and its world, in which one host can boot.
func attacked(limits server.Limits, changes ...func(*server.Options)) (*site, *world) {
	GinkgoHelper()
	w := newWorld()
	w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
	w.addOverlay("machine-0", w.addRendered("infra", "infra"), life)
	return serveWithin(w, short, limits, changes...), w
}

// secured opens a TLS connection from the address of hosts and sends a text.
func (s *site) secured(text string) (*tls.Conn, error) {
	return s.securedBy(localAddress, func(*net.TCPConn) error { return nil }, text)
}

// securedBy is secured from an address, with a change of the TCP connection.
func (s *site) securedBy(address string, change func(*net.TCPConn) error, text string) (*tls.Conn, error) {
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	plain, err := dialFrom(address, s.Listener.Addr())
	if err != nil {
		return nil, err
	}
	if err := change(plain.(*net.TCPConn)); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	if config.ServerName == "" {
		config.ServerName = "example.com" // in the certificate of httptest
	}
	conn := tls.Client(plain, config)
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	if err := conn.Handshake(); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	if _, err = io.WriteString(conn, text); err != nil && text != "" {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// bootOnce acts as a host: it opens a connection, gets both answers, and returns how long this took.
func (s *site) bootOnce() (time.Duration, error) {
	start := time.Now()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}}
	defer client.CloseIdleConnections()
	for _, path := range []string{configPath, s.rendered} {
		request, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return 0, errors.Join(err, response.Body.Close())
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %s, %w", path, response.Status, err)
		}
	}
	return time.Since(start), nil
}

// slow lists ways in which a neighbor of hosts keeps a connection open without a complete request.
var slow = []struct {
	name string
	open func(s *site) (net.Conn, error)
}{
	{"no word", func(s *site) (net.Conn, error) { return dialFrom(neighborAddress, s.Listener.Addr()) }},
	{"half a ClientHello", func(s *site) (net.Conn, error) {
		conn, err := dialFrom(neighborAddress, s.Listener.Addr())
		if err == nil {
			_, err = conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3})
		}
		return conn, err
	}},
	{"a handshake and no request", func(s *site) (net.Conn, error) { return s.securedNearby("") }},
	{"a header without an end", func(s *site) (net.Conn, error) {
		return s.securedNearby("GET " + configPath + " HTTP/1.1\r\nHost: a\r\nX-a: b")
	}},
}

// securedNearby is secured from the address of a neighbor of hosts.
func (s *site) securedNearby(text string) (*tls.Conn, error) {
	return s.securedBy(neighborAddress, func(*net.TCPConn) error { return nil }, text)
}

// drip sends single bytes until the connection is closed, and returns how long it was open.
func drip(conn net.Conn) time.Duration {
	start, one := time.Now(), make([]byte, 1)
	for {
		if secured, ok := conn.(*tls.Conn); ok {
			_, _ = secured.Write([]byte("a"))
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := conn.Read(one); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return time.Since(start)
		}
	}
}

var _ = Describe("A hostile network", func() {
	It("can't block the server with slow connections: each is closed at its time limit, and hosts boot meanwhile", func() {
		const each = 40
		s, _ := attacked(server.DefaultLimits)
		var attackers sync.WaitGroup
		var mu sync.Mutex
		stood := map[string]time.Duration{}
		for _, way := range slow {
			for range each {
				attackers.Go(func() {
					defer GinkgoRecover()
					conn, err := way.open(s)
					Expect(err).NotTo(HaveOccurred())
					defer conn.Close()
					lasted := drip(conn)
					mu.Lock()
					defer mu.Unlock()
					stood[way.name] = max(stood[way.name], lasted)
				})
			}
		}
		worst := time.Duration(0)
		for range 20 {
			took, err := s.bootOnce()
			Expect(err).NotTo(HaveOccurred())
			worst = max(worst, took)
		}
		attackers.Wait()
		AddReportEntry("slow connections stood at most", fmt.Sprint(stood))
		AddReportEntry("slowest of 20 boots meanwhile", worst.String())
		Expect(stood).To(HaveLen(len(slow)), "the server has closed each of them")
		Eventually(func() float64 { return figure(s, "poolboot_config_server_connections", nil) }).Should(BeZero())
	})

	It("of one address can't fill the server with connections: hosts at other addresses boot meanwhile", func() {
		limits := server.Limits{Connections: 100, Turns: 10}
		s, _ := attacked(limits)
		stop := make(chan struct{})
		var attackers sync.WaitGroup
		DeferCleanup(func() { close(stop); attackers.Wait() })
		for i := range 150 {
			attackers.Go(func() {
				for {
					conn, err := slow[i%len(slow)].open(s)
					if err == nil {
						_ = conn.SetReadDeadline(time.Now().Add(time.Second))
						_, _ = conn.Read(make([]byte, 1))
						_ = conn.Close()
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		dropped := func() float64 { return figure(s, "poolboot_config_server_connections_dropped_total", nil) }
		Eventually(dropped).Should(BeNumerically(">", limits.Connections))
		for range 5 {
			_, err := s.bootOnce()
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("can't block turns by repeating requests, or by not reading the answers", func() {
		limits := server.DefaultLimits
		limits.Turns = 2
		s, _ := attacked(limits)
		const request = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
		conn, err := s.secured(request)
		Expect(err).NotTo(HaveOccurred())
		reader := bufio.NewReader(conn)
		again := func() error {
			answer, err := http.ReadResponse(reader, nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			return errors.Join(err, answer.Body.Close())
		}
		Expect(again()).To(Succeed())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for err := error(nil); err == nil; err = again() {
				if _, err = io.WriteString(conn, request); err != nil {
					return
				}
			}
		}()
		DeferCleanup(func() { _ = conn.Close(); <-ended })
		deaf, err := s.secured(request)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = deaf.Close() })
		Eventually(func() error { // until all buffers are full
			if err := deaf.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				return err
			}
			_, err := io.WriteString(deaf, strings.Repeat(request, 10000))
			return err
		}).Should(MatchError(os.ErrDeadlineExceeded))
		_, err = s.bootOnce()
		Expect(err).NotTo(HaveOccurred())
	})

	It("causes no write and no work by guessing tokens, machines and names", func() {
		s, w := attacked(server.DefaultLimits)
		before, start := w.renderedReads(), time.Now()
		const flood = 400
		var attackers sync.WaitGroup
		for range 8 {
			attackers.Go(func() {
				defer GinkgoRecover()
				for i := range flood / 8 {
					path := [...]string{configPath, "/config/infra/default/nobody/" + pointerID, "/config/infra/default/edge?name=edge-1", s.rendered, "/nothing"}[i%5]
					response, _ := s.get(path, fmt.Sprint("guess-", i))
					Expect(response.StatusCode).To(BeElementOf(http.StatusUnauthorized, http.StatusServiceUnavailable, http.StatusNotFound))
				}
			})
		}
		attackers.Wait()
		AddReportEntry("guesses a second, 8 at a time, client and server together", fmt.Sprintf("%.0f", flood/time.Since(start).Seconds()))
		Expect(w.requests() + w.servings()).To(BeZero())
		Expect(w.renderedReads()).To(Equal(before))
		Expect(cachedBytes(s)).To(BeZero())
	})
})

// exchange sends a raw request, and returns the status code, the content type and the body of the answer.
func (s *site) exchange(request string) (code int, contentType string, body []byte) {
	GinkgoHelper()
	conn, err := s.secured("")
	Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	Expect(conn.SetDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
	go func() { _, _ = io.WriteString(conn, request) }() // the server can answer and close before it has read everything
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Close).To(BeTrue(), "the connection is of no more use")
	return response.StatusCode, response.Header.Get("Content-Type"), body
}

var _ = Describe("A request that no host sends", func() {
	var s *site
	var w *world
	BeforeEach(func() { s, w = attacked(server.DefaultLimits) })
	authorization := "Host: a\r\nAuthorization: Bearer " + token + "\r\n\r\n"

	DescribeTable("gets a clear error, and no object is read", func(line string, code int) {
		got, contentType, body := s.exchange(line + " HTTP/1.1\r\n" + authorization)
		Expect(got).To(Equal(code), string(body))
		Expect(contentType).To(Equal("application/json"))
		word, message := problem(body)
		Expect(word).NotTo(BeEmpty())
		Expect(message).NotTo(BeEmpty())
		Expect(w.lookups()).To(BeZero())
	},
		Entry("dots", "GET /config/../rendered/default/rendered-infra-0", 404),
		Entry("escaped dots", "GET /config/%2e%2e/infra/default/machine-0/"+pointerID, 404),
		Entry("an escaped slash", "GET /config/infra%2fdefault/machine-0/"+pointerID, 404),
		Entry("two slashes", "GET /"+configPath, 404),
		Entry("two slashes inside the path", "GET /config//infra/default/machine-0/"+pointerID, 404),
		Entry("a trailing slash", "GET "+configPath+"/", 404),
		Entry("an escaped NUL", "GET /config/infra/default/machine-0/%00", 404),
		Entry("an escaped line break", "GET /config/infra/default/machine-0/a%0d%0aX-a:b", 404),
		Entry("a backslash", `GET /config\infra\`+pointerID, 404),
		Entry("a semicolon", "GET "+configPath+";a=b", 404),
		Entry("a long name", "GET /config/infra/default/"+strings.Repeat("a", 8000), 404),
		Entry("a file", "GET /etc/passwd", 404),
		Entry("OPTIONS for the whole server", "OPTIONS *", 404),
		Entry("a request to a proxy", "CONNECT a:443", 404),
		Entry("a write", "PUT "+configPath, 405),
		Entry("a TRACE", "TRACE "+configPath, 405),
	)

	DescribeTable("is rejected by net/http if it exceeds a limit or is malformed, and its connection is closed", func(request string, code int) {
		got, contentType, body := s.exchange(request)
		Expect(got).To(Equal(code), string(body))
		Expect(contentType).To(HavePrefix("text/plain"), "the request did not reach the handler")
	},
		Entry("a header of 1 MiB", "GET "+configPath+" HTTP/1.1\r\nX-a: "+strings.Repeat("a", 1<<20)+"\r\n"+authorization, 431),
		Entry("ten thousand headers", "GET "+configPath+" HTTP/1.1\r\n"+strings.Repeat("X-a: b\r\n", 10000)+authorization, 431),
		Entry("a path of 1 MiB", "GET /"+strings.Repeat("a", 1<<20)+" HTTP/1.1\r\n"+authorization, 431),
		Entry("NUL in the path", "GET /config/\x00 HTTP/1.1\r\n"+authorization, 400),
		Entry("NUL in a header", "GET "+configPath+" HTTP/1.1\r\nX-a: \x00\r\n"+authorization, 400),
		Entry("no Host header", "GET "+configPath+" HTTP/1.1\r\n\r\n", 400),
		Entry("two Content-Length headers", "GET "+configPath+" HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n"+authorization, 400),
		Entry("an unknown transfer encoding", "GET "+configPath+" HTTP/1.1\r\nTransfer-Encoding: a\r\n"+authorization, 501),
	)
})
