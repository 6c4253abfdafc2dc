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
)

// figure returns the sum of a metric's values over the label values that fit.
func figure(s *site, name string, labels map[string]string) (sum float64) {
	GinkgoHelper()
	families, err := s.registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() == name && fits(metric, labels) {
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func fits(metric *dto.Metric, labels map[string]string) bool {
	for _, label := range metric.Label {
		if want, ok := labels[label.GetName()]; ok && want != label.GetValue() {
			return false
		}
	}
	return true
}

func cachedBytes(s *site) float64 {
	GinkgoHelper()
	return figure(s, "poolboot_config_server_rendered_cached_bytes", nil)
}

var _ = Describe("Metrics", func() {
	It("count requests by kind of path and code, and how long hosts were held", func() {
		w := newWorld()
		w.addRecord(pointerID, "machine-0", hashOf(token))
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
	})
})

var _ = Describe("Readiness", func() {
	It("says why the server is not ready", func() {
		metrics, err := server.NewMetrics(prometheus.NewRegistry())
		Expect(err).NotTo(HaveOccurred())
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
