// Package integration tests Poolboot's controllers, webhooks and config server with the real Cluster API core, a real
// workload cluster and the Metal3 simulator. Its hosts only fetch their configuration, as Ignition does. Hosts that
// boot are in test/suites/e2e.
package integration

import (
	"os"
	"path/filepath"
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
	lab           *site.Site
	hosts         *fakeHosts
	stormHardware *storm.Hardware
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Integration with Cluster API")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	format.MaxLength, format.TruncatedDiff = 0, false
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	hosts = newFakeHosts()
	stormHardware = &storm.Hardware{Fallback: hosts}
	// Without streaming lists, as with older API servers, Poolboot needs the right to list. Other suites use streaming
	// lists.
	GinkgoT().Setenv("KUBE_FEATURE_WatchListClient", "false")
	agents := GinkgoT().TempDir()
	for _, architecture := range []string{"amd64", "arm64"} {
		Expect(os.WriteFile(filepath.Join(agents, "poolboot-agent-"+architecture), []byte("never started"), 0o600)).To(Succeed())
	}
	lab = tenant.StartSite(ctx, site.Options{Hardware: stormHardware, GarbageCollector: true,
		Flags: site.Flags{
			Manager: []string{"--agent-directory=" + agents}, ConfigServer: []string{"--agent-directory=" + agents},
			// The hosts have no kubelet that sends heartbeats.
			ControllerManager: []string{"--node-monitor-grace-period=1h"},
		},
	})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
