// Package integration holds Poolboot's controllers, webhooks and config server to their promises together with the real
// Cluster API core, a real workload cluster and the Metal3 simulator. Hosts do here only what Ignition does over the
// network: they ask. Hosts that really boot are in test/e2e.
package integration

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/storm"
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
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	hosts = newAskingHosts()
	storms = &storm.Hardware{Otherwise: hosts}
	var err error
	// The site outlives this node's context.
	lab, err = site.Start(context.WithoutCancel(ctx), site.Options{Hardware: storms, Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(5*time.Minute))

var _ = AfterSuite(func() {
	if lab != nil {
		Expect(lab.Stop()).To(Succeed())
	}
})

// When a spec fails, what the programs say helps more than anything.
var _ = ReportAfterEach(func(report SpecReport) {
	if lab == nil || !report.Failed() {
		return
	}
	for _, program := range []*site.Program{lab.Manager, lab.ConfigServer} {
		log, _ := program.Log()
		AddReportEntry("log", log[max(0, len(log)-16_000):])
	}
})
