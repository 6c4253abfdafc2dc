package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("A machine's overlay", func() {
	var w *world
	var name string
	BeforeEach(func() {
		w = newWorld()
		name = w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", hashOf(token))
		w.addOverlay("machine-0", name, life)
	})

	It("is handed out as it is stored: the server packs nothing", func() {
		// It is 45. Packing takes 110 more.
		Expect(allocations(w, configPath)).To(BeNumerically("<", 60))
	})

	It("that stands has its host wait for nothing: a pool's bytes are handed out as they stand in memory", func() {
		// It is 42, none of them as large as the bytes. To subscribe to changes and copy the bytes takes 15 more.
		Expect(allocations(w, "/rendered/default/"+name+"?pointer="+pointerID)).To(BeNumerically("<", 50))
	})

	It("is answered with as soon as it is made anew, also before the server is told", func() {
		s := serve(w, long)
		s.get(configPath, token)
		w.addOverlay("machine-0", name, life)
		w.set(func() {
			anew := w.overlays["machine-0"]
			anew.Packed = packed(strings.ReplaceAll(overlayJSON, secretInOverlay, "a-new-credential"))
			w.overlays["machine-0"] = anew
		})
		_, body := s.get(configPath, token)
		_, overlay := parts(body)
		Expect(string(overlay)).To(And(ContainSubstring("a-new-credential"), Not(ContainSubstring(secretInOverlay))))
	})

	It("is for its own machine only", func() {
		const other = "9f0c1c1e-5f0a-4c55-8f0e-000000000003"
		w.addRecord(other, "machine-1", hashOf("another token"))
		w.set(func() {
			w.overlays["machine-1"] = server.Overlay{ // of the same version, as two Secrets of two restored backups may be
				Packed:        packed(strings.ReplaceAll(overlayJSON, secretInOverlay, "of-the-other")),
				Configuration: name, Expires: time.Now().Add(life), Version: w.overlays["machine-0"].Version,
			}
		})
		s := serve(w, long)
		_, first := s.get(configPath, token)
		_, second := s.get("/config/infra/"+other, "another token")
		Expect(string(first)).To(And(ContainSubstring("Bearer "+token), Not(ContainSubstring("another token"))))
		Expect(string(second)).To(And(ContainSubstring("Bearer another token"), Not(ContainSubstring(token+`"`))))
		_, overlay := parts(second)
		Expect(string(overlay)).To(ContainSubstring("of-the-other"))
	})
})

// allocations is how many allocations an answer takes that was given before, without those of TLS and net/http.
func allocations(w *world, path string) float64 {
	GinkgoHelper()
	metrics, err := server.NewMetrics(prometheus.NewRegistry())
	Expect(err).NotTo(HaveOccurred())
	handler := server.New(server.Options{
		ExternalURL: &url.URL{Scheme: "https", Host: "config-server.example:8443"},
		Records:     w, Overlays: overlaysOf{w}, Rendered: renderedOf{w}, Boots: w,
		Metrics: metrics, Log: logr.Discard(), Wait: short, Now: time.Now,
	})
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	var answer discarded
	each := testing.AllocsPerRun(100, func() {
		answer = discarded{header: http.Header{}}
		handler.ServeHTTP(&answer, request)
	})
	handler.Finish()
	Expect(answer.code).To(Equal(http.StatusOK))
	return each
}

// discarded is an answer of which only the code is kept.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header { return d.header }

func (d *discarded) WriteHeader(code int) { d.code = code }

func (d *discarded) Write(p []byte) (int, error) {
	if d.code == 0 {
		d.code = http.StatusOK
	}
	return len(p), nil
}
