package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// BenchmarkAnswer is what an answer costs beyond TLS and net/http: the handler alone.
//
//   - config is a machine's own configuration.
//   - rendered is the pool's bytes.
//   - unknown is the refusal of a host whose machine is not known (503), and not-ready that of one whose overlay does
//     not come in time (503, here after no time at all).
func BenchmarkAnswer(b *testing.B) {
	m, err := newMachine(usual)
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

// discarded is an answer of which only the code is kept.
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
