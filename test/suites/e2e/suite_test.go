// Package e2e tests Poolboot from a MachineDeployment to a Node that is in its pool from its first version. Real are
// Ignition, systemd, the container runtime, kubelet, kubeadm, both API servers, Cluster API's core, and Poolboot's two
// programs with the rights that config/ gives them. Simulated are the hardware and Cluster API's Metal3 provider.
package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/secrecy"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var (
	lab     *site.Site
	secrets *secrecy.Watch
)

// debugVerbosity is the highest verbosity for debugging. From 8 on, client-go logs the bodies of requests.
const debugVerbosity = "-v=7"

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "End to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	lab = tenant.StartSite(ctx, site.Options{Consoles: GinkgoWriter, Flags: site.Flags{Manager: []string{debugVerbosity}, ConfigServer: []string{debugVerbosity}}})
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(end)
	var err error
	secrets, err = secrecy.Start(watching, lab.Dir(), lab.Management, lab.Workload)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(5*time.Minute))

// The manager used exactly the documented rights in the workload cluster, and no secret leaked.
var _ = AfterSuite(func(ctx SpecContext) {
	if secrets == nil {
		return // BeforeSuite failed
	}
	Expect(rights.CheckWorkload(lab.Workload, rights.InEndToEnd)).To(Succeed())
	expectNoLeaks(ctx)
}, NodeTimeout(2*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
