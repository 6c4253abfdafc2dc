// Package e2e holds Poolboot to its promises from a MachineDeployment to a Node that is born in its pool, with everything
// real but hardware, Cluster API's Metal3 provider and the container runtime: Ignition, kubelet, kubeadm, both API servers,
// Cluster API's core, and Poolboot's two programs under the rights that config/ gives them.
package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/tenant"
)

var lab *site.Site

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot from end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	lab = tenant.StartSite(ctx, site.Options{Consoles: GinkgoWriter})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
