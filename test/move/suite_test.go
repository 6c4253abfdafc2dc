// Package move holds Poolboot to its promise that a cluster can change its management cluster at any time: by clusterctl move,
// and by a backup that is restored elsewhere, with hosts that ask for their configuration all the while. clusterctl's own code
// does the moving, between two management clusters that run the real Cluster API core and Poolboot's two programs.
package move

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
)

// here is where the cluster is first, there is where it is moved to. Both reach the same workload cluster and hosts, and
// hosts reach either config server, whichever runs, by the same address.
var here, there *site.Site

func TestMove(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot through clusterctl move, backup and restore")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(60 * time.Second)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	var err error
	// The sites outlive this node's context.
	here, err = site.Start(context.WithoutCancel(ctx), site.Options{Progress: GinkgoWriter, Consoles: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	there, err = site.Start(context.WithoutCancel(ctx), site.Options{Progress: GinkgoWriter, Predecessor: here})
	Expect(err).NotTo(HaveOccurred())
	for _, s := range []*site.Site{here, there} {
		labelKinds(ctx, s.ManagementClient)
	}
}, NodeTimeout(5*time.Minute))

var _ = AfterSuite(func() {
	for _, s := range []*site.Site{there, here} {
		if s != nil {
			Expect(s.Stop()).To(Succeed())
		}
	}
})

// When a spec fails, what the programs say helps more than anything.
var _ = ReportAfterEach(func(report SpecReport) {
	if there == nil || !report.Failed() {
		return
	}
	for _, program := range []*site.Program{here.Manager, here.ConfigServer, there.Manager, there.ConfigServer} {
		log, _ := program.Log()
		AddReportEntry("log", log[max(0, len(log)-16_000):])
	}
})
