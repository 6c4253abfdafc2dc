// Package scrape reads what a program tells Prometheus.
package scrape

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Sum is the sum of a metric over the label values that fit: of counters and gauges their values, of histograms how
// often something was observed. A label that is not named may have any value.
func Sum(from prometheus.Gatherer, name string, labels map[string]string) (sum float64, err error) {
	return total(from, name, labels, func(m *dto.Metric) float64 {
		return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	})
}

// Observed is the sum of all that a histogram has observed, in the metric's unit.
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
		if want, asked := labels[label.GetName()]; asked && want != label.GetValue() {
			return false
		}
	}
	return true
}
