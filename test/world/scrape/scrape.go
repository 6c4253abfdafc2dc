// Package scrape reads Prometheus metrics.
package scrape

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Sum sums a metric over all series that match the labels: the values of counters and gauges, the sample counts of
// histograms.
func Sum(from prometheus.Gatherer, name string, labels map[string]string) (sum float64, err error) {
	return total(from, name, labels, func(m *dto.Metric) float64 {
		return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	})
}

// Observed sums the observed values of a histogram over all series that match the labels.
func Observed(from prometheus.Gatherer, name string, labels map[string]string) (sum float64, err error) {
	return total(from, name, labels, func(m *dto.Metric) float64 { return m.GetHistogram().GetSampleSum() })
}

func total(from prometheus.Gatherer, name string, labels map[string]string, of func(*dto.Metric) float64) (sum float64, err error) {
	families, err := from.Gather()
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() == name && fits(metric, labels) {
				sum += of(metric)
			}
		}
	}
	return sum, err
}

func fits(metric *dto.Metric, labels map[string]string) bool {
	for _, label := range metric.Label {
		if want, ok := labels[label.GetName()]; ok && want != label.GetValue() {
			return false
		}
	}
	return true
}
