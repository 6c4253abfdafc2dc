// Package kubelets tests that kubelets of the supported Kubernetes releases adopt pre-registered Nodes, register them
// again, and keep them over a restart, with the real API server. "make test-kubelets" runs the suite once for each
// release, with a kubelet that is built from source. "make test" skips it.
package kubelets

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// releaseVariable is the environment variable with the release of the kubelet that the hosts run, such as 1.34.
const releaseVariable = "KUBELET_RELEASE"

var (
	lab     *site.Site
	release string
)

func TestKubelets(t *testing.T) {
	if release = os.Getenv(releaseVariable); release == "" {
		t.Skip("run make test-kubelets, which builds the kubelets of the supported releases and sets " + releaseVariable)
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Kubelet "+release)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	lab = tenant.StartSite(ctx, site.Options{Consoles: GinkgoWriter})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
