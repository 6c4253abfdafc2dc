// Package soak tests many simulated hosts with faults. It boots hosts for a configured duration, while config servers
// are killed and the connections between Poolboot's programs and both API servers are bad. It updates a pool, while
// hosts fail, agents are killed, and Poolboot and both API servers restart. "make test" runs it for a short duration
// and with few hosts, "make soak" for a long duration, "make bench-rollout" with many hosts.
package soak

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

const (
	// durationVariable is the environment variable with the duration. Without it the suite runs for a short duration.
	durationVariable = "SOAK_DURATION"
	// hostsVariable is the environment variable with the number of hosts of a rollout.
	hostsVariable = "ROLLOUT_HOSTS"
)

// The duration of each soak test, and the interval at which a config server is killed.
var (
	soakDuration = 8 * time.Second
	killInterval = 6 * time.Second
)

// hosts is the number of hosts of a rollout, and rolloutTimeout the time in which they must boot and follow three
// changes.
var (
	hosts          = 60
	rolloutTimeout = 10 * time.Minute
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
	if text := os.Getenv(hostsVariable); text != "" {
		var err error
		if hosts, err = strconv.Atoi(text); err != nil || hosts < 20 {
			t.Fatalf("%s=%q: write a number of hosts of at least 20", hostsVariable, text)
		}
		rolloutTimeout = 6 * time.Hour
	}
	RunSpecs(t, "Soak")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	lab = tenant.StartSite(ctx, site.Options{
		Hardware: hardware, Replicas: 2, Ways: true, Agents: true, Concurrency: 10, RetryInterval: 5 * time.Second,
		// The hosts have no kubelet that sends heartbeats, and signing is not measured.
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=10h", "--kube-api-qps=1000", "--kube-api-burst=1000"}},
	})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
