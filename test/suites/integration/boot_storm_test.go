package integration

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/ledger"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

var _ = Describe("Hosts that boot simultaneously, with a controller that assigns the worker config to each plain worker", func() {
	const n = 15

	It("never get the worker config with Poolboot, and always get it with Cluster API's label sync", func(ctx SpecContext) {
		ours, err := storm.Run(ctx, lab, stormHardware, storm.Poolboot(), n)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("Poolboot", ours.String(), ReportEntryVisibilityAlways)
		requests, err := lab.Requests(ours.Started)
		Expect(err).NotTo(HaveOccurred())
		var table strings.Builder
		all, err := site.PrintRequests(&table, requests)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("requests", "\n"+table.String())
		peer, err := storm.Run(ctx, lab, stormHardware, storm.Kubeadm(), n)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("Cluster API's kubeadm bootstrap provider and label sync", peer.String(), ReportEntryVisibilityAlways)

		Expect(ours.Nodes).To(And(HaveField("Nodes", n), HaveField("Outside", 0), HaveField("Orders", 0)))
		Expect(ours.Nodes.Versions).To(BeNumerically(">=", 3*n), "created, registered, Ready")
		Expect(peer.Nodes).To(And(HaveField("Nodes", n), HaveField("Orders", n)), "each Node is seen as a plain worker")
		Expect(peer.Nodes.Outside).To(BeNumerically(">=", n))
		Expect(ledger.Enter("boot-requests", float64(all)/n)).To(Succeed())
	}, SpecTimeout(10*time.Minute))
})
