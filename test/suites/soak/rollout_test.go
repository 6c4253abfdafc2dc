package soak

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/ledger"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

// The requests are counted first: nothing else then happens on the site.
var _ = Describe("A pool of many hosts", Ordered, ContinueOnFailure, func() {
	It("costs few requests for each update", func(ctx SpecContext) {
		const n = 40
		fleet, err := storm.NewFleet(ctx, lab, hardware, n, storm.Unkindness{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fleet.Stop)
		began := time.Now()
		rendered, err := fleet.Configure(ctx, "another")
		Expect(err).NotTo(HaveOccurred())
		Expect(fleet.WaitUntilUpdated(ctx, rendered)).To(Succeed())

		requests, err := lab.Requests(began)
		Expect(err).NotTo(HaveOccurred())
		var table strings.Builder
		all, err := site.PrintRequests(&table, requests)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("requests", "\n"+table.String())
		statuses := 0
		for kind, count := range requests {
			if kind.Resource == "poolbootconfigs/status" {
				statuses += count.All
			}
		}
		Expect(ledger.Enter("update-requests", float64(all)/n)).To(Succeed())
		Expect(ledger.Enter("update-status-patches", float64(statuses)/n)).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("never has more hosts away than allowed, while hosts fail, agents are killed, and Poolboot and both API servers restart", func(spec SpecContext) {
		ctx, end := context.WithTimeout(spec, rolloutTimeout)
		defer end()
		fleet, err := storm.NewFleet(ctx, lab, hardware, hosts, storm.Unkindness{Life: agentLife(), Uptime: 10 * time.Minute, Failures: 0.1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fleet.Stop)
		Eventually(ctx, fleet.CompareClone).WithArguments(fleet.First, fleet.Clone).WithTimeout(time.Minute).Should(Succeed())

		faults := []struct {
			what string
			do   func(context.Context) error
		}{
			{"killing the manager", func(ctx context.Context) error {
				if err := lab.Manager.Kill(); err != nil {
					return err
				}
				return lab.Manager.Start(ctx)
			}},
			{"restarting the API server of the workload cluster", func(ctx context.Context) error {
				if err := lab.Workload.StopAPIServer(); err != nil {
					return err
				}
				return lab.Workload.StartAPIServer(ctx)
			}},
			{"restarting the API server of the management cluster, without which the manager gives up", func(ctx context.Context) error {
				if err := lab.Management.StopAPIServer(); err != nil {
					return err
				}
				if err := lab.Manager.Kill(); err != nil {
					return err
				}
				if err := lab.Management.StartAPIServer(ctx); err != nil {
					return err
				}
				return lab.Manager.Start(ctx)
			}},
		}
		began := time.Now()
		rendered, err := fleet.Configure(ctx, "another")
		Expect(err).NotTo(HaveOccurred())
		for i, fault := range faults {
			Expect(fleet.WaitForShare(ctx, rendered, float64(i+1)/float64(len(faults)+1))).To(Succeed())
			By(fault.what)
			Expect(fault.do(ctx)).To(Succeed())
			if i == 0 {
				By("changing the configuration again while hosts are updated to the first one")
				rendered, err = fleet.Configure(ctx, "newer")
				Expect(err).NotTo(HaveOccurred())
			}
		}
		Expect(fleet.WaitUntilUpdated(ctx, rendered)).To(Succeed())

		verdict := fleet.Judge.Verdict()
		AddReportEntry("rollout", verdict.String()+" of "+fleet.Limit()+", "+time.Since(began).Round(time.Second).String())
		Expect(verdict.Gaps).To(BeZero(), "every version was seen, also those before the API server was killed")
		Expect(verdict.MostAway).To(BeNumerically("<=", fleet.MaxUnavailable))
		Expect(verdict.MostAway).To(BeNumerically(">", 1), "hosts are updated in parallel")
		Expect(verdict.Updates).To(BeNumerically(">=", hosts), "and more for updates that were tried again")
	}, NodeTimeout(6*time.Hour))
})

// agentLife returns the mean time after which an agent is killed: 20 s, and more for hosts so many that a small machine
// would do little more than start agents. Then ten agents are killed per second.
func agentLife() time.Duration {
	return max(20*time.Second, time.Duration(hosts)*time.Second/10)
}
