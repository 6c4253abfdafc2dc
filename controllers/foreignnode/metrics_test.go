package foreignnode

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

// metricSum returns the sum of the series of a metric that have the labels.
func metricSum(name string, labels map[string]string) float64 {
	GinkgoHelper()
	sum, err := scrape.Sum(metrics.Registry, name, labels)
	Expect(err).NotTo(HaveOccurred())
	return sum
}
