// Package soak boots hosts for a configured duration, while config servers are killed and the connections between
// Poolboot's programs and both API servers are bad, and counts the results. "make test" runs it for a short duration,
// "make soak" for a long one.
package soak

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// durationVariable is the environment variable with the duration. Without it the suite runs for a short duration.
const durationVariable = "SOAK_DURATION"

// The duration of each soak test, and the interval at which a config server is killed.
var (
	soakDuration = 8 * time.Second
	killInterval = 6 * time.Second
)

var (
	lab      *site.Site
	hardware = &storm.Hardware{}
)

func TestSoak(t *testing.T) {
	RegisterFailHandler(Fail)
	if text := os.Getenv(durationVariable); text != "" {
		var err error
		if soakDuration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", durationVariable, err)
		}
		killInterval = 20 * time.Second
	}
	RunSpecs(t, "Soak")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	lab = tenant.StartSite(ctx, site.Options{
		Hardware: hardware, Replicas: 2, Ways: true,
		// The hosts have no kubelet that sends heartbeats.
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=1h"}},
	})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
