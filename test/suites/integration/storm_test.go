package integration

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

var _ = Describe("Hosts that boot all at once, before one who orders the worker pool's configuration at first sight", func() {
	const n = 30

	It("never give it a reason; with Cluster API's own label sync each of them does", func(ctx SpecContext) {
		ours, err := storm.Run(ctx, lab, storms, storm.Poolboot(), n)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("Poolboot", ours.String(), ReportEntryVisibilityAlways)
		peers, err := storm.Run(ctx, lab, storms, storm.Kubeadm(), n)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("Cluster API's kubeadm bootstrap provider and label sync", peers.String(), ReportEntryVisibilityAlways)

		Expect(ours.Nodes).To(And(HaveField("Nodes", n), HaveField("Outside", 0), HaveField("Orders", 0)))
		Expect(ours.Nodes.Versions).To(BeNumerically(">=", 3*n), "made, registered, Ready")
		Expect(peers.Nodes).To(And(HaveField("Nodes", n), HaveField("Orders", n)), "every plain worker is caught")
		Expect(peers.Nodes.Outside).To(BeNumerically(">=", n))
	}, SpecTimeout(10*time.Minute))
})
