// Package scrape reads Prometheus metrics in specs. If that fails, the spec fails.
package scrape

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Sum sums a metric over all series that match the labels: the values of counters and gauges, the sample counts of
// histograms.
func Sum(from prometheus.Gatherer, name string, labels map[string]string) float64 {
	GinkgoHelper()
	return total(from, name, labels, func(m *dto.Metric) float64 {
		return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	})
}

// Observed sums the observed values of a histogram over all series that match the labels.
func Observed(from prometheus.Gatherer, name string, labels map[string]string) float64 {
	GinkgoHelper()
	return total(from, name, labels, func(m *dto.Metric) float64 { return m.GetHistogram().GetSampleSum() })
}

func total(from prometheus.Gatherer, name string, labels map[string]string, of func(*dto.Metric) float64) (sum float64) {
	GinkgoHelper()
	families, err := from.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() == name && fits(metric, labels) {
				sum += of(metric)
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
