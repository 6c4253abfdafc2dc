// Package move tests that a cluster can change its management cluster at any time, by clusterctl move and by restoring
// a backup, while hosts request their configuration and are updated. It uses clusterctl's own code and two management
// clusters with the real Cluster API core and Poolboot's programs.
package move

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// The cluster is moved from source to target. Both have the same workload cluster and hosts, and their config servers
// have the same address.
var source, target *site.Site

func TestMove(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Move, backup and restore")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	source = tenant.StartSite(ctx, site.Options{Agents: true, Consoles: GinkgoWriter})
	target = tenant.StartSite(ctx, site.Options{Agents: true, Predecessor: source})
	for _, s := range []*site.Site{source, target} {
		labelKinds(ctx, s.ManagementClient)
	}
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, source, target) })
