// Package soak has hosts boot for as long as it is told to, while config servers are killed and the ways between
// Poolboot's programs and both API servers are bad, and counts what comes of it. "make test" runs a short form of it,
// "make soak" the long one.
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

// duration, in the environment, is how long hosts boot; without it the short form runs.
const duration = "SOAK_DURATION"

// How long things are, and how often a server is killed: in the short form, and in the long one.
var (
	soaking   = 8 * time.Second
	killEvery = 6 * time.Second
)

var (
	lab      *site.Site
	hardware = &storm.Hardware{}
)

func TestSoak(t *testing.T) {
	RegisterFailHandler(Fail)
	if text := os.Getenv(duration); text != "" {
		var err error
		if soaking, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", duration, err)
		}
		killEvery = 20 * time.Second
	}
	RunSpecs(t, "Soak")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	lab = tenant.StartSite(ctx, site.Options{
		Hardware: hardware, Replicas: 2, Ways: true,
		// The hosts have no heartbeat.
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=1h"}},
	})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
