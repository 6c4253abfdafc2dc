// Package move holds Poolboot to its promise that a cluster can change its management cluster at any time: by
// clusterctl move, and by a backup that is restored elsewhere, with hosts that ask for their configuration all the
// while. clusterctl's own code does the moving, between two management clusters that run the real Cluster API core and
// Poolboot's two programs.
package move

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// here is where the cluster is first, there is where it is moved to. Both reach the same workload cluster and hosts,
// and hosts reach either config server, whichever runs, by the same address.
var here, there *site.Site

func TestMove(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot through clusterctl move, backup and restore")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	here = tenant.StartSite(ctx, site.Options{Consoles: GinkgoWriter})
	there = tenant.StartSite(ctx, site.Options{Predecessor: here})
	for _, s := range []*site.Site{here, there} {
		labelKinds(ctx, s.ManagementClient)
	}
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, here, there) })
