package hosts_test

import (
	"context"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// configServer answers a number of requests with 503, then serves the config. Without the token it answers 401.
type configServer struct {
	*httptest.Server
	ca       []byte
	notReady atomic.Int32
	requests atomic.Int32
}

func newConfigServer(ctx context.Context, rack *baremetal.Rack, config []byte) *configServer {
	GinkgoHelper()
	authority, err := loopback.NewCA("config-server")
	Expect(err).NotTo(HaveOccurred())
	server := &configServer{ca: authority.PEM()}
	server.Server = newServer(ctx, rack.Address(), func(w http.ResponseWriter, r *http.Request) {
		server.requests.Add(1)
		switch {
		case r.Header.Get("Authorization") != "Bearer the-token":
			w.WriteHeader(http.StatusUnauthorized)
		case server.notReady.Add(-1) >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = w.Write(config)
		}
	})
	server.TLS = newTLS(authority, rack.Address())
	server.StartTLS()
	return server
}

// newTLS returns the configuration of a server with a certificate for names.
func newTLS(authority *loopback.CA, names ...string) *tls.Config {
	GinkgoHelper()
	pair, err := authority.Server(names...)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	Expect(err).NotTo(HaveOccurred())
	return &tls.Config{Certificates: []tls.Certificate{certificate}}
}

// pointer returns user data that merges the server's config and verifies its hash.
func (s *configServer) pointer(config []byte, token string) []byte {
	GinkgoHelper()
	sum := sha512.Sum512(config)
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{
		"version": "3.1.0",
		"config": map[string]any{"merge": []any{map[string]any{
			"source":       s.URL + "/config/infra/machine",
			"httpHeaders":  []any{map[string]any{"name": "Authorization", "value": "Bearer " + token}},
			"verification": map[string]any{"hash": "sha512-" + hex.EncodeToString(sum[:])},
		}}},
		"security": map[string]any{"tls": map[string]any{"certificateAuthorities": []any{
			map[string]any{"source": dataURL(string(s.ca))},
		}}},
	}})
	Expect(err).NotTo(HaveOccurred())
	return raw
}

var _ = Describe("A host with a pointer in its user data", Ordered, func() {
	var (
		rack   *baremetal.Rack
		config []byte
	)

	BeforeAll(func(ctx SpecContext) {
		rack = newRack(ctx)
		config = document(map[string]any{
			"storage": files(file("/etc/infratest", 0o640, "infra"), file("/etc/marks.env", 0o600, "MARKS=--one=1 --two=\"2 and more\"\n")),
			"systemd": units(
				unit("mark.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "EnvironmentFile=/etc/marks.env",
					"ExecStart=/bin/sh -c 'for a in \"$$@\"; do echo \"$$a\"; done >/run/marks' sh $MARKS",
					"[Install]", "WantedBy=multi-user.target"),
				unit("sentinel.path", "[Path]", "PathExists=/run/marks", "[Install]", "WantedBy=multi-user.target"),
				map[string]any{"name": "sentinel.service", "contents": "[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
					"ExecStartPre=/usr/bin/mkdir -p /run/cluster-api\nExecStart=/usr/bin/touch /run/cluster-api/bootstrap-success.complete\n"}),
		})
	})

	It("retries until the server answers, writes the files and runs the units", func(ctx SpecContext) {
		server := newConfigServer(ctx, rack, config)
		server.notReady.Store(2)
		h := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, server.pointer(config, "the-token"))
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(h.Joined).Should(BeTrue())
		Expect(server.requests.Load()).To(BeEquivalentTo(3))
		Expect(h.Run(ctx, "cat", "/run/marks")).To(Equal("--one=1\n--two=2 and more\n"))
		Expect(h.Run(ctx, "stat", "--format=%a %U", "/etc/infratest", "/etc/marks.env")).To(Equal("640 root\n600 root\n"))

		server.Close()
		Expect(h.Reset(ctx)).To(Succeed())
		Eventually(h.Joined).Should(BeTrue(), "a reboot needs no config server")
		Expect(server.requests.Load()).To(BeEquivalentTo(3))
	}, SpecTimeout(5*time.Minute))

	It("stops requesting when its power is cut", func(ctx SpecContext) {
		server := newConfigServer(ctx, rack, config)
		server.notReady.Store(1 << 30)
		h := newHostWithUserData(rack, "host-1", baremetal.KubeletImage, server.pointer(config, "the-token"))
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(server.requests.Load).Should(BeNumerically(">", 2))
		Expect(h.PowerCut()).To(Succeed())
		Expect(h.Err()).NotTo(HaveOccurred())
		server.CloseClientConnections() // the last request can be unread
		requests := server.requests.Load()
		Consistently(server.requests.Load).WithTimeout(time.Second).Should(Equal(requests))
	}, SpecTimeout(3*time.Minute))

	It("does not boot when the server refuses its token", func(ctx SpecContext) {
		server := newConfigServer(ctx, rack, config)
		h := newHostWithUserData(rack, "host-2", baremetal.KubeletImage, server.pointer(config, "another-token"))
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(h.Off()).Should(BeClosed())
		Expect(h.Err()).To(MatchError(ContainSubstring("ignition, stage fetch")))
	}, SpecTimeout(3*time.Minute))

	It("does not boot when the config's hash differs from the pointer's", func(ctx SpecContext) {
		server := newConfigServer(ctx, rack, append(config, '\n'))
		h := newHostWithUserData(rack, "host-3", baremetal.KubeletImage, server.pointer(config, "the-token"))
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(h.Off()).Should(BeClosed())
		Expect(h.Err()).To(MatchError(ContainSubstring("hash verification failed")))
	}, SpecTimeout(3*time.Minute))
})
