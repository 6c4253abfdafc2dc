// Package updates tests running hosts that follow their pool: real hosts in namespaces with the real agent, kubelet and
// systemd, both API servers, Cluster API's core, and Poolboot's two programs.
package updates

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var lab *site.Site

func TestUpdates(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Updates of running hosts")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	lab = tenant.StartSite(ctx, site.Options{Agents: true, Consoles: GinkgoWriter})
}, NodeTimeout(5*time.Minute))

// The manager used no other rights in the workload cluster than the documented ones.
var _ = AfterSuite(func() {
	if lab == nil {
		return // BeforeSuite failed
	}
	Expect(rights.CheckWorkload(lab.Workload, func([]rights.Right) []rights.Right { return nil })).To(Succeed())
})

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })

// expectJoined waits until the Node of a config is Ready in its pool, and its host has reported to the manager.
func expectJoined(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
	Eventually(ctx, t.Condition(config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True"))
}
