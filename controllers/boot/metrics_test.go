package boot

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// counted is the sum of a counter over the label values that fit.
func counted(name string, labels map[string]string) (sum float64) {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.Metric {
			fits := family.GetName() == name
			for _, label := range metric.Label {
				if want, asked := labels[label.GetName()]; asked && want != label.GetValue() {
					fits = false
				}
			}
			if fits {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}
