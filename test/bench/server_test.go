package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

const (
	benchToken   = "bench-token"
	benchPointer = "7d8f3f0a-3a64-4c5c-9c51-2f3f4b1f0003"
	// unknownMachine is the name of no Machine.
	unknownMachine = "unknown"
	// requestCount is the number of requests of a measurement, and hostsAtOnce the number of concurrent requests.
	requestCount = 64
	hostsAtOnce  = 16
)

// authority is the certificate authority of the measured servers.
var authority = sync.OnceValue(func() *loopback.CA {
	ca, err := loopback.NewCA("bench")
	if err != nil {
		panic(err)
	}
	return ca
})

// certificate is the serving certificate of all servers.
var certificate = sync.OnceValue(func() tls.Certificate {
	pair, err := authority().Server()
	if err != nil {
		panic(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		panic(err)
	}
	return certificate
})

// BenchmarkConfigServer requests a pool's configuration and a prepared Machine's configuration from a config server
// with TLS on loopback. The peer is net/http's file server with the same content and TLS settings.
func BenchmarkConfigServer(b *testing.B) {
	ours, rendered := configServer(b)
	for _, what := range []struct{ name, path string }{
		{"pool", renderedPath(rendered, "infra-0")},
		{"overlay", configPath("infra-0")},
	} {
		body, err := request(newHostClient(true, authority().PEM()), ours+what.path)
		if err != nil {
			b.Fatal(err)
		}
		peers := fileServer(b, body)
		for _, connection := range []struct {
			name string
			keep bool
		}{{"kept-alive", true}, {"new-connection", false}} {
			b.Run(what.name+"/"+connection.name, func(b *testing.B) {
				hosts := newHostClient(connection.keep, authority().PEM())
				defer hosts.CloseIdleConnections()
				our, peer := compare(b, requestConcurrently(hosts, ours+what.path), requestConcurrently(hosts, peers+"/body"))
				b.ReportMetric(requestCount/our.Seconds(), "req/s")
				b.ReportMetric(requestCount/peer.Seconds(), "peer-req/s")
			})
		}
	}
}

// requestConcurrently returns an operation of the benchmark: many hosts request a URL.
func requestConcurrently(hosts *http.Client, target string) func() error {
	return func() error {
		var asking errgroup.Group
		asking.SetLimit(hostsAtOnce)
		for range requestCount {
			asking.Go(func() error {
				_, err := request(hosts, target)
				return err
			})
		}
		return asking.Wait()
	}
}

// newHostClient returns a client like Ignition's: HTTP/1.1, without decompression and TLS session resumption.
func newHostClient(keep bool, ca []byte) *http.Client {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: trusted},
		DisableKeepAlives:   !keep,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 1024,
	}}
}

func request(hosts *http.Client, target string) ([]byte, error) {
	request, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+benchToken)
	response, err := hosts.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", target, response.Status, body)
	}
	return body, errors.Join(err, response.Body.Close())
}

// listen serves a handler with the config server's TLS settings and returns its URL.
func listen(b *testing.B, handler http.Handler) string {
	s := httptest.NewUnstartedServer(nil)
	s.Config = server.NewHTTPServer(handler, nil)
	s.TLS = server.TLSConfig(nil)
	s.TLS.Certificates = []tls.Certificate{certificate()}
	s.StartTLS()
	b.Cleanup(s.Close)
	return s.URL
}

func fileServer(b *testing.B, body []byte) string {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "body"), body, 0o600); err != nil {
		b.Fatal(err)
	}
	return listen(b, http.FileServer(http.Dir(dir)))
}

// configServer serves a Machine of a rendered pool and returns its URL and the rendered config's name.
func configServer(b *testing.B) (address, rendered string) {
	machine, err := newMachine(defaultLoad)
	if err != nil {
		b.Fatal(err)
	}
	return listen(b, newHandler(b, machine, machineOverlay{machine})), machine.rendered.Name
}

func newHandler(b *testing.B, machine *machine, overlays server.Source[types.UID, server.Overlay]) http.Handler {
	metrics := server.NewMetrics(prometheus.NewRegistry())
	return server.New(server.Options{
		ExternalURL: &url.URL{Scheme: "https", Host: "config-server.example:8443"},
		Sources:     server.Sources{Records: machine, Overlays: overlays}, Rendered: machineConfig{machine}, Boots: machine, Wait: time.Nanosecond,
		Metrics: metrics, Log: logr.Discard(), Ready: func() error { return nil },
	})
}

// machine is a management cluster with a Machine that can boot.
type machine struct {
	overlay  server.Overlay
	rendered poolv1.MachineConfig
	packed   *server.PoolBytes
	hashes   hashes
}

func newMachine(size load) (*machine, error) {
	all, err := size.make()
	if err != nil {
		return nil, err
	}
	rendered, err := pool.Render("infra", pools(), all)
	if err != nil {
		return nil, err
	}
	packed, err := overlay()
	if err != nil {
		return nil, err
	}
	m := &machine{
		overlay: server.Overlay{Packed: packed, Configuration: rendered.Name, Expires: time.Now().Add(24 * time.Hour), Version: "1"},
		rendered: poolv1.MachineConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: rendered.Name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"}},
			Spec:       rendered.Spec,
		},
	}
	m.packed, err = server.PackRendered(&m.rendered)
	return m, err
}

// configPath is the path of a Machine's configuration, and renderedPath the path of its pool's configuration.
func configPath(name string) string { return "/config/infra/default/" + name + "/" + benchPointer }

func renderedPath(rendered, name string) string {
	return "/rendered/default/" + rendered + "?config=" + name + "&pointer=" + benchPointer
}

func (m *machine) Get(_ context.Context, name types.NamespacedName) (*server.Record, error) {
	if name.Name == unknownMachine {
		return nil, nil
	}
	uid := types.UID(name.Name)
	return &server.Record{
		NamespacedName: name, UID: uid, PointerID: benchPointer, Token: record.Token{Hash: m.hashes.of(name, uid), UID: uid},
	}, nil
}

// hashes are the recorded hashes of benchToken. They are computed in advance, because this is not measured.
type hashes struct{ sync.Map }

func (h *hashes) of(name types.NamespacedName, uid types.UID) string {
	if known, ok := h.Load(name); ok {
		return known.(string)
	}
	made := access.Config(name, uid).Hash(benchToken)
	h.Store(name, made)
	return made
}

func (m *machine) RecordRequest(context.Context, server.Record, netip.Addr, time.Time) error {
	return nil
}

func (m *machine) RecordAddress(context.Context, server.Record, netip.Addr, time.Time) error {
	return nil
}

func (m *machine) RecordServed(context.Context, server.Record, time.Time) error { return nil }

func (m *machine) RecordRegistrationRequest(context.Context, server.Record, time.Time) error {
	return nil
}

func (m *machine) RecordFailure(context.Context, server.Record, server.IgnitionFailure, time.Time) error {
	return nil
}

type machineOverlay struct{ *machine }

func (m machineOverlay) Get(context.Context, types.UID) (*server.Overlay, error) {
	return &m.overlay, nil
}

type machineConfig struct{ *machine }

func (m machineConfig) Get(context.Context, types.NamespacedName) (*server.PoolBytes, error) {
	return m.packed, nil
}
