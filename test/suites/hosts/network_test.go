package hosts_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// nameServer is a DNS server of a rack that knows one name at most, which has the address of this machine.
type nameServer struct {
	name    atomic.Value
	unknown atomic.Int32 // the number of requests for a name that it did not know
}

func newNameServer(ctx context.Context, address string) *nameServer {
	GinkgoHelper()
	server := &nameServer{}
	server.name.Store("")
	connection, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(address, "53"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(connection.Close)
	go func() {
		request := make([]byte, 512)
		for {
			n, client, err := connection.ReadFrom(request)
			if err != nil {
				return
			}
			if answer, err := server.answer(request[:n], net.ParseIP(address)); err == nil {
				_, _ = connection.WriteTo(answer, client)
			}
		}
	}()
	return server
}

func (s *nameServer) answer(request []byte, address net.IP) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(request); err != nil || len(message.Questions) != 1 {
		return nil, io.ErrUnexpectedEOF
	}
	question := message.Questions[0]
	message.Header = dnsmessage.Header{ID: message.ID, Response: true}
	message.Additionals = nil
	switch {
	case question.Name.String() != s.name.Load():
		s.unknown.Add(1)
		message.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: [4]byte(address.To4())},
		}}
	}
	return message.Pack()
}

// proxy is an HTTP proxy that connects every client with one server, whatever name the client requests.
type proxy struct {
	*httptest.Server
	mu        sync.Mutex // guards requested
	requested []string
}

func newProxy(ctx context.Context, address, target string) *proxy {
	GinkgoHelper()
	p := &proxy{}
	p.Server = newServer(ctx, address, func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requested = append(p.requested, r.Method+" "+r.Host)
		p.mu.Unlock()
		server, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", target)
		if r.Method != http.MethodConnect || err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		go func() { _, _ = io.Copy(server, buffered) }()
		_, _ = io.Copy(client, server)
	})
	p.Start()
	return p
}

// requests returns the requests so far, with method and server.
func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.requested...)
}

// serve returns a server of a file at a port of an address.
func serve(ctx context.Context, address, content string) *httptest.Server {
	GinkgoHelper()
	return newServer(ctx, address, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content) })
}

var _ = Describe("A host without network", func() {
	It("waits for a route, then for the config server's name in DNS, and boots", func(ctx SpecContext) {
		rack := newRack(ctx)
		names := newNameServer(ctx, rack.Address())
		byAddress := serve(ctx, rack.Address(), string(document(map[string]any{"storage": files(file("/etc/by-address", 0o644, "yes"))})))
		byName := serve(ctx, rack.Address(), string(document(map[string]any{"storage": files(file("/etc/by-name", 0o644, "yes"))})))
		byAddress.Start()
		byName.Start()
		_, port, err := net.SplitHostPort(byName.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		h := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, []byte(`{"ignition": {"version": "3.4.0", "config": {"merge": [
			{"source": "`+byAddress.URL+`"}, {"source": "http://config.example.com:`+port+`"}]}}}`))
		Expect(h.Unplug(ctx)).To(Succeed())
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(h.Console).Should(ContainSubstring("no route to host"))
		Expect(names.unknown.Load()).To(BeZero())

		Expect(h.PlugIn(ctx)).To(Succeed())
		Eventually(h.Console).Should(ContainSubstring("lookup config.example.com on " + rack.Address() + ":53: no such host"))
		Expect(h.Err()).NotTo(HaveOccurred())
		Expect(count(h, baremetal.ConfigFetched)).To(BeZero())

		names.name.Store("config.example.com.")
		waitForBoot(ctx, h)
		Expect(h.Run(ctx, "cat", "/etc/by-address", "/etc/by-name")).To(Equal("yesyes"))
		Expect(count(h, baremetal.IgnitionStarted)).To(Equal(1))
	}, SpecTimeout(3*time.Minute))

	It("boots from its disk, and has the network when the cable is plugged in", func(ctx SpecContext) {
		rack := newRack(ctx)
		h := newHost(rack, "host-0", baremetal.KubeletImage, map[string]any{})
		Expect(h.PowerOn(ctx)).To(Succeed())
		first := waitForBoot(ctx, h)
		before := h.Address()
		h.ChangeAddress()
		Expect(h.Address()).NotTo(Equal(before))
		Expect(h.Unplug(ctx)).To(Succeed())
		Expect(h.Reset(ctx)).To(Succeed())
		waitForAnotherBoot(ctx, h, first)
		Expect(h.Run(ctx, "cat", "/sys/class/net/eth0/operstate")).To(Equal("down\n"))
		Expect(h.PlugIn(ctx)).To(Succeed())
		Eventually(func() (string, error) { return h.Run(ctx, "hostname", "--all-ip-addresses") }).Should(Equal(h.Address() + " \n"))
	}, SpecTimeout(3*time.Minute))
})

var _ = Describe("A pool with a proxy", func() {
	It("downloads its files and its images through the proxy", func(ctx SpecContext) {
		rack := newRack(ctx)
		authority, err := loopback.NewCA("files")
		Expect(err).NotTo(HaveOccurred())
		origin := serve(ctx, rack.Address(), "content")
		origin.TLS = newTLS(authority, "files.example.com")
		origin.StartTLS()
		proxy := newProxy(ctx, rack.Address(), origin.Listener.Addr().String())

		dropin := map[string]any{"name": "proxy.conf", "contents": "[Service]\nEnvironment=HTTPS_PROXY=" + proxy.URL + " NO_PROXY=10.0.0.0/8,.svc\n"}
		raw := []byte(`{"ignition": {"version": "3.4.0", "proxy": {"httpsProxy": "` + proxy.URL + `"},
			"security": {"tls": {"certificateAuthorities": [{"source": "` + dataURL(string(authority.PEM())) + `"}]}}},
			"storage": {"files": [{"path": "/etc/downloaded", "contents": {"source": "https://files.example.com/file"}}]}}`)
		files := machineConfig("00-files", "worker", map[string]any{})
		files.Spec.Config.Raw = raw
		programs := machineConfig("01-programs", "worker", map[string]any{"systemd": units(
			map[string]any{"name": "containerd.service", "dropins": []any{dropin}},
			map[string]any{"name": "kubelet.service", "dropins": []any{dropin}})})

		h := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, servedTo("infra", files, programs))
		Expect(h.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, h)
		Expect(h.Run(ctx, "cat", "/etc/downloaded")).To(Equal("content"))
		Expect(proxy.requests()).To(HaveEach("CONNECT files.example.com:443"))

		Eventually(func() []string { // containerd may not have opened its socket
			_, _ = h.Run(ctx, "/opt/containerd/bin/ctr", "images", "pull", "registry.example.com/image:1") // fails: it is not a registry
			return proxy.requests()
		}).Should(ContainElement("CONNECT registry.example.com:443"))
		Expect(h.Run(ctx, "cat", "/etc/systemd/system/kubelet.service.d/proxy.conf")).To(ContainSubstring("HTTPS_PROXY=" + proxy.URL))
	}, SpecTimeout(3*time.Minute))
})
