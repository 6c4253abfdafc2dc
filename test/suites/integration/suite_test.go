// Package integration holds Poolboot's controllers, webhooks and config server to their promises together with the real
// Cluster API core, a real workload cluster and the Metal3 simulator. Hosts do here only what Ignition does over the
// network: they ask. Hosts that really boot are in test/suites/e2e.
package integration

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var (
	lab    *site.Site
	hosts  *askingHosts
	storms *storm.Hardware
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot with the real Cluster API")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	format.MaxLength, format.TruncatedDiff = 0, false
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	hosts = newAskingHosts()
	storms = &storm.Hardware{Otherwise: hosts}
	// As with an API server that has no streaming lists: Poolboot needs the right to list there. Other suites have
	// them.
	GinkgoT().Setenv("KUBE_FEATURE_WatchListClient", "false")
	lab = tenant.StartSite(ctx, site.Options{Hardware: storms, GarbageCollector: true,
		// The hosts have no heartbeat.
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=1h"}},
	})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
