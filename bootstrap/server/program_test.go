package server_test

import (
	"crypto/sha512"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// agentPath returns the path of a program.
func agentPath(program []byte) string {
	sum := sha512.Sum512(program)
	return "/agent/" + hex.EncodeToString(sum[:])
}

var _ = Describe("The agent's program", func() {
	amd64, arm64 := []byte(strings.Repeat("for amd64", 100)), []byte(strings.Repeat("for arm64", 100))
	var s *site
	BeforeEach(func() {
		programs, err := server.NewPrograms(amd64, arm64)
		Expect(err).NotTo(HaveOccurred())
		s = serve(newWorld(), short, func(o *server.Options) { o.Programs = programs })
	})

	It("is served by its hash to everyone, as a gzip file that never changes", func() {
		for _, program := range [][]byte{amd64, arm64} {
			response, body := s.get(agentPath(program), "")
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
			Expect(unpack(body)).To(Equal(program))
			Expect(response.Header.Get("Content-Type")).To(Equal("application/gzip"))
			Expect(response.Header.Get("Cache-Control")).To(Equal("public, max-age=31536000, immutable"))
			Expect(response.Header.Get("Content-Encoding")).To(BeEmpty())
			etag := response.Header.Get("ETag")
			Expect(etag).To(Equal(`"` + strings.TrimPrefix(agentPath(program), "/agent/") + `"`))

			head, nothing := s.send(http.MethodHead, agentPath(program), "")
			Expect(head.StatusCode).To(Equal(http.StatusOK))
			Expect(head.ContentLength).To(BeEquivalentTo(len(body)))
			Expect(nothing).To(BeEmpty())
			known, nothing := s.sendWith(http.MethodGet, agentPath(program), "", http.Header{"If-None-Match": {etag}})
			Expect(known.StatusCode).To(Equal(http.StatusNotModified))
			Expect(nothing).To(BeEmpty())
		}
	})

	It("is served whatever spec version of Ignition the client reads", func() {
		response, _ := s.sendWith(http.MethodGet, agentPath(amd64), "", http.Header{"Accept": {"application/vnd.coreos.ignition+json;version=2.2.0"}})
		Expect(response.StatusCode).To(Equal(http.StatusOK))
	})

	It("that this replica does not have is no end of the boot, because another replica can have it", func() {
		for _, site := range []*site{s, serve(newWorld(), short)} {
			response, body := site.get(agentPath([]byte("of the next version")), "")
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
			Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
			Expect(string(body)).To(ContainSubstring("during an upgrade"))
		}
	})

	It("that stays unknown ends the boot after ten minutes, for the client that requests it", func() {
		now := time.Now()
		s = serve(newWorld(), short, func(o *server.Options) { o.Now = func() time.Time { return now } })
		old := agentPath([]byte("of an earlier version"))
		for _, step := range []struct {
			later time.Duration
			code  int
		}{
			{0, http.StatusServiceUnavailable}, {5 * time.Minute, http.StatusServiceUnavailable}, {4 * time.Minute, http.StatusServiceUnavailable},
			{time.Minute, http.StatusGone},
		} {
			now = now.Add(step.later)
			response, body := s.get(old, "")
			Expect(response.StatusCode).To(Equal(step.code), string(body))
		}
		response, _ := s.get(agentPath([]byte("of another version")), "")
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))

		By("requesting the same from another address")
		request := httptest.NewRequest(http.MethodGet, old, nil)
		request.RemoteAddr = "192.0.2.7:1234"
		answer := httptest.NewRecorder()
		s.handler.ServeHTTP(answer, request)
		Expect(answer.Code).To(Equal(http.StatusServiceUnavailable))
	})

	It("that was unknown in an earlier boot is no end of the next one, as in another upgrade", func() {
		now := time.Now()
		s = serve(newWorld(), short, func(o *server.Options) { o.Now = func() time.Time { return now } })
		for range 3 {
			response, body := s.get(agentPath([]byte("of the next version")), "")
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
			now = now.Add(24 * time.Hour)
		}
	})

	It("that its overlay names is on this replica, or the host waits for another overlay", func() {
		w := newWorld()
		name := w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		programs, err := server.NewPrograms(amd64)
		Expect(err).NotTo(HaveOccurred())
		s = serve(w, short, func(o *server.Options) { o.Programs = programs })
		names := func(program []byte) {
			w.addOverlay("machine-0", name, life)
			w.set(func() {
				overlay := w.overlays["machine-0"]
				overlay.AgentSHA512 = strings.TrimPrefix(agentPath(program), "/agent/")
				w.overlays["machine-0"] = overlay
			})
		}
		names([]byte("of an earlier version"))
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(string(body)).To(ContainSubstring("names an agent that this replica does not have"))
		Expect(w.requests()).To(Equal(1), "so that the manager creates another overlay")
		names(amd64)
		response, body = s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	})

	It("is found only by a whole hash", func() {
		path := agentPath(amd64)
		for _, target := range []string{"/agent/", "/agent", path[:20], strings.ToUpper(path), path + "/", path + "0", "/agent/../poolboot-agent-amd64", "/agent/%2e%2e/x"} {
			response, _ := s.get(target, "")
			Expect(response.StatusCode).To(Equal(http.StatusNotFound), target)
		}
	})
})

// countedListener counts what its connections send.
type countedListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{conn.(*net.TCPConn), l.sent}, nil
}

type countedConn struct {
	*net.TCPConn
	sent *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

var _ = Describe("Clients that download the agent and do not read it", func() {
	It("fill little memory of the kernel", func() {
		program := make([]byte, 8<<20)
		for i := range program {
			program[i] = byte(rand.Uint32())
		}
		programs, err := server.NewPrograms(program)
		Expect(err).NotTo(HaveOccurred())
		const clients = 8
		var sent atomic.Int64
		s := serveOn(newWorld(), short, server.DefaultLimits, func(l net.Listener) net.Listener { return countedListener{l, &sent} },
			func(o *server.Options) { o.Programs = programs })
		for range clients {
			conn, err := s.securedBy(localAddress, func(conn *net.TCPConn) error { return conn.SetReadBuffer(4 << 10) },
				"GET "+agentPath(program)+" HTTP/1.1\r\nHost: a\r\n\r\n")
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(conn.Close)
		}
		Eventually(sent.Load).Should(BeNumerically(">", clients*32<<10))
		Consistently(sent.Load, time.Second, 50*time.Millisecond).Should(BeNumerically("<", clients*320<<10))
	})
})
