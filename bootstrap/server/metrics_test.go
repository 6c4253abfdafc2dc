package server_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

// figure returns the sum of a metric's values over all series with these labels.
func figure(s *site, name string, labels map[string]string) float64 {
	GinkgoHelper()
	return scrape.Sum(s.registry, name, labels)
}

func cachedBytes(s *site) float64 {
	GinkgoHelper()
	return figure(s, "poolboot_config_server_rendered_cached_bytes", nil)
}

var _ = Describe("Metrics", func() {
	It("count requests by kind of path and code, and measure how long requests were held", func() {
		w := newWorld()
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		s := serve(w, short)
		s.get(configPath, token)
		s.get(configPath, "guessed")
		s.get("/etc/passwd", "")
		count := func(path, code string) float64 {
			return figure(s, "poolboot_config_server_requests_total", map[string]string{"path": path, "code": code})
		}
		Eventually(count).WithArguments("config", "503").Should(Equal(1.0))
		Eventually(count).WithArguments("config", "401").Should(Equal(1.0))
		Eventually(count).WithArguments("unknown", "404").Should(Equal(1.0))
		Expect(figure(s, "poolboot_config_server_boot_wait_seconds", map[string]string{"result": "timeout"})).To(Equal(1.0))
		Expect(figure(s, "poolboot_config_server_boots_waiting", nil)).To(BeZero())
		requests := map[string]string{"path": "config"}
		Expect(figure(s, "poolboot_config_server_request_seconds", requests)).To(Equal(2.0))
		Expect(scrape.Observed(s.registry, "poolboot_config_server_request_seconds", requests)).To(And(BeNumerically(">=", short.Seconds()), BeNumerically("<", 60)), "one was held, the other was not")
	})

	It("start at 0, because rate and increase would miss the first request of each kind and code", func() {
		s := serve(newWorld(), short)
		families, err := s.registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		number := map[string]int{}
		for _, family := range families {
			number[family.GetName()] = len(family.Metric)
		}
		Expect(number).To(And(
			HaveKeyWithValue("poolboot_config_server_requests_total", 34), HaveKeyWithValue("poolboot_config_server_request_seconds", 7),
			HaveKeyWithValue("poolboot_config_server_boot_wait_seconds", 4), HaveKeyWithValue("poolboot_config_server_record_errors_total", 1),
			HaveKeyWithValue("poolboot_config_server_connections_dropped_total", 1)))
		s.get("/etc/passwd", "")
		s.get(configPath, "guessed")
		Eventually(func() ([]*dto.MetricFamily, error) { return s.registry.Gather() }).Should(ContainElement(And(
			HaveField("GetName()", "poolboot_config_server_requests_total"), HaveField("Metric", HaveLen(34)))), "all series existed before")
	})

	It("show how many hosts wait, how long they waited, and how many writes failed", func() {
		w := newWorld()
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		rendered := w.addRendered("infra", "infra")
		s := serve(w, long)
		waiting := -1.0
		w.onRequest = func() {
			waiting = figure(s, "poolboot_config_server_boots_waiting", nil)
			w.addOverlay("machine-0", rendered, life)
			s.handler.OverlayChanged("machine-0")
		}
		response, _ := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(waiting).To(Equal(1.0))
		Expect(figure(s, "poolboot_config_server_boots_waiting", nil)).To(BeZero())
		Expect(figure(s, "poolboot_config_server_boot_wait_seconds", map[string]string{"result": "served"})).To(Equal(1.0))
		Expect(figure(s, "poolboot_config_server_boot_wait_seconds", nil)).To(Equal(1.0))
		Expect(figure(s, "poolboot_config_server_record_errors_total", nil)).To(BeZero())
	})
})

var _ = Describe("Readiness", func() {
	It("reports why the server is not ready", func() {
		metrics := server.NewMetrics(prometheus.NewRegistry())
		handler := server.New(server.Options{Metrics: metrics, Log: logr.Discard(), Ready: func() error { return errors.New("the caches are not in sync") }})
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		Expect(answer.Code).To(Equal(http.StatusServiceUnavailable))
		Expect(io.ReadAll(answer.Body)).To(ContainSubstring("the caches are not in sync"))
		answer = httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		Expect(answer.Code).To(Equal(http.StatusOK))
	})
})
