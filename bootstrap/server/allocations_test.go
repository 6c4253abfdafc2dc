//go:build !race

// With the race detector, a sync.Pool drops items at random, so allocations cannot be counted.

package server_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("A request", func() {
	var w *world
	var name string
	BeforeEach(func() {
		w = newWorld()
		name = w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		w.addOverlay("machine-0", name, life)
		w.set(func() { // as after the first request
			w.records["machine-0"].ServedTime = time.Now()
			w.records["machine-0"].Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		})
	})

	// The titles contain what was measured with Go 1.26. Most allocations are those of net/http, and two or three those
	// of the sources in this test.
	DescribeTable("causes few allocations, because its answer is in memory", func(path func() string, accept string, code, allocations int) {
		Expect(allocationsOf(w, path(), accept, code)).To(BeNumerically("<=", allocations))
	},
		Entry("for a pool's configuration (25)", func() string { return renderedPath(w) }, "", http.StatusOK, 27),
		Entry("for a pool's configuration in an older version (28)", func() string { return renderedPath(w) }, accepting("3.4.0"), http.StatusOK, 29),
		Entry("for a machine's configuration (32)", func() string { return configPath }, "", http.StatusOK, 34),
		Entry("of an unknown machine (32)", func() string { return "/config/infra/default/unknown/" + pointerID }, "", http.StatusServiceUnavailable, 33),
	)
})

// allocationsOf returns the number of allocations for a request, from the first byte read to the last byte written,
// without TLS.
func allocationsOf(w *world, path, accept string, code int) float64 {
	GinkgoHelper()
	metrics := server.NewMetrics(prometheus.NewRegistry())
	handler := server.New(server.Options{
		ExternalURL: &url.URL{Scheme: "https", Host: "config-server.example:8443"},
		Sources:     server.Sources{Records: w, Overlays: overlaysOf{w}}, Rendered: renderedOf{w}, Boots: w,
		Metrics: metrics, Log: logr.Discard(), Wait: short,
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	hosts := server.NewHTTPServer(handler, nil)
	go func() { _ = hosts.Serve(server.NewListener(listener, server.DefaultLimits, metrics)) }()
	defer func() { Expect(hosts.Shutdown(context.Background())).To(Succeed()) }()
	host, err := net.Dial("tcp", listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	defer host.Close()

	request := []byte("GET " + path + " HTTP/1.1\r\nHost: a\r\nUser-Agent: Ignition/2.27.0\r\nAccept-Encoding: identity\r\nAuthorization: Bearer " + token + "\r\n")
	if accept != "" {
		request = append(request, "Accept: "+accept+"\r\n"...)
	}
	request = append(request, "\r\n"...)
	answer := make([]byte, 64<<10)
	status := append([]byte("HTTP/1.1 "), http.StatusText(code)...)
	status = append(status[:9], []byte{byte('0' + code/100), byte('0' + code/10%10), byte('0' + code%10)}...)
	send := func() { // an answer is small enough for one read
		if _, err = host.Write(request); err == nil {
			var n int
			if n, err = host.Read(answer); err == nil && !bytes.HasPrefix(answer[:n], status) {
				panic(string(answer[:n]))
			}
		}
	}
	send()
	each := testing.AllocsPerRun(200, send)
	Expect(err).NotTo(HaveOccurred())
	return each
}
