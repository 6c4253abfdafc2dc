package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// BenchmarkAnswer measures the handler of the config server alone, without TLS and net/http.
//
//   - config is a request for the configuration of a machine.
//   - rendered is a request for the configuration of the pool.
//   - unknown is a request for a machine that is not known (503), and not-ready is one for a machine whose overlay does
//     not exist in time (503, here without waiting).
func BenchmarkAnswer(b *testing.B) {
	m, err := newMachine(defaultLoad)
	if err != nil {
		b.Fatal(err)
	}
	config := configPath("infra-0")
	ready, without := newHandler(b, m, machineOverlay{m}), newHandler(b, m, noOverlays{})
	b.Run("config", func(b *testing.B) { answer(b, ready, config, http.StatusOK) })
	b.Run("rendered", func(b *testing.B) {
		answer(b, ready, renderedPath(m.rendered.Name, "infra-0"), http.StatusOK)
	})
	b.Run("unknown", func(b *testing.B) {
		answer(b, without, configPath(unknownMachine), http.StatusServiceUnavailable)
	})
	b.Run("not-ready", func(b *testing.B) { answer(b, without, config, http.StatusServiceUnavailable) })
}

type noOverlays struct{}

func (noOverlays) Get(context.Context, types.UID) (*server.Overlay, error) { return nil, nil }

func answer(b *testing.B, handler http.Handler, path string, code int) {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Authorization", "Bearer "+benchToken)
	b.ReportAllocs()
	handler.ServeHTTP(&discarded{header: http.Header{}}, request)
	for b.Loop() {
		w := &discarded{header: http.Header{}}
		handler.ServeHTTP(w, request)
		if w.code != code {
			b.Fatalf("%s: %d", path, w.code)
		}
	}
}

// discarded is a response of which only the status code is kept.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header  { return d.header }
func (d *discarded) WriteHeader(code int) { d.code = code }
func (d *discarded) Write(p []byte) (int, error) {
	if d.code == 0 {
		d.code = http.StatusOK
	}
	return len(p), nil
}
