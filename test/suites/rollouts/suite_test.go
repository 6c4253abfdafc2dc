// Package rollouts updates pools of many simulated hosts, while hosts fail, agents are killed, and Poolboot and both
// API servers restart. "make test" runs it with few hosts, "make bench-rollout" with many.
package rollouts

import (
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// hostsVariable is the environment variable with the number of hosts.
const hostsVariable = "ROLLOUT_HOSTS"

// hosts is the number of hosts, and stormTimeout the time in which they must boot and follow three changes.
var (
	hosts        = 60
	stormTimeout = 10 * time.Minute
)

var (
	lab      *site.Site
	hardware = &storm.Hardware{}
)

func TestRollouts(t *testing.T) {
	RegisterFailHandler(Fail)
	if text := os.Getenv(hostsVariable); text != "" {
		var err error
		if hosts, err = strconv.Atoi(text); err != nil || hosts < 20 {
			t.Fatalf("%s=%q: write a number of hosts of at least 20", hostsVariable, text)
		}
		stormTimeout = 6 * time.Hour
	}
	RunSpecs(t, "Rollouts")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	lab = tenant.StartSite(ctx, site.Options{
		Hardware: hardware, Agents: true, Concurrency: 10, RetryInterval: 5 * time.Second,
		// The hosts have no kubelet that sends heartbeats, and signing is not measured.
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=10h", "--kube-api-qps=1000", "--kube-api-burst=1000"}},
	})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
