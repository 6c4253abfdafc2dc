package poolbootconfig

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

// counted returns the sum of one of the manager's metrics over the series with these labels.
func counted(name string, labels map[string]string) float64 {
	GinkgoHelper()
	sum, err := scrape.Sum(metrics.Registry, name, labels)
	Expect(err).NotTo(HaveOccurred())
	return sum
}
