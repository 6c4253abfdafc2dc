// Package e2e holds Poolboot to its promises from a MachineDeployment to a Node that is born in its pool, with everything
// real but hardware, Cluster API's Metal3 provider and the container runtime: Ignition, kubelet, kubeadm, both API servers,
// Cluster API's core, and Poolboot's two programs under the rights that config/ gives them.
package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
)

var lab *site.Site

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot from end to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	var err error
	// The site outlives this node's context.
	lab, err = site.Start(context.WithoutCancel(ctx), site.Options{Progress: GinkgoWriter, Consoles: GinkgoWriter})
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
