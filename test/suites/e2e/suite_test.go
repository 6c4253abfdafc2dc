// Package e2e holds Poolboot to its promises from a MachineDeployment to a Node that is born in its pool, with
// everything real but hardware, Cluster API's Metal3 provider and the container runtime: Ignition, kubelet, kubeadm,
// both API servers, Cluster API's core, and Poolboot's two programs under the rights that config/ gives them.
package e2e

import (
	"context"
	"slices"
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

// asDebugged is as loud as Poolboot's programs are when somebody looks for a fault. From 8 on client-go prints what it
// sends.
const asDebugged = "-v=7"

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot from end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	lab = tenant.StartSite(ctx, site.Options{Consoles: GinkgoWriter, Flags: site.Flags{Manager: []string{asDebugged}, ConfigServer: []string{asDebugged}}})
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(end)
	var err error
	secrets, err = secrecy.Start(watching, lab.Dir(), lab.Management, lab.Workload)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(5*time.Minute))

// What the manager did in the workload cluster is what the documentation says, and nothing secret was told to anybody.
var _ = AfterSuite(func(ctx SpecContext) {
	if secrets == nil {
		return // nothing has started
	}
	documented, err := rights.Documented("Rights of the manager in a workload cluster")
	Expect(err).NotTo(HaveOccurred())
	used, err := rights.UsedAway(lab.Workload)
	Expect(err).NotTo(HaveOccurred())
	Expect(documented).To(ContainElements(used))
	if rights.WholeRun() {
		Expect(used).To(ContainElements(slices.DeleteFunc(documented, func(r rights.Right) bool { return slices.Contains(rights.SeenInIntegrationOnly, r) })))
	}
	expectSecrecy(ctx)
}, NodeTimeout(2*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
