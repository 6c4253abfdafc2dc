package rollout

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("The messages of status", func() {
	It("have a failure that is retried, which is not counted as failed, and for which --watch waits", func(ctx SpecContext) {
		s := newSite(nil, newHost("a", oldConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UpdateFailingReason, "it can't download web, which it retries"))
		r := s.run("status")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-1 0/1 1 0 <none> host a: UpdateFailing: it can't download web, which it retries"))
		Expect(r.Code).To(BeZero())
		r = s.run("status", "infra", "--watch", "--timeout", "200ms")
		Expect(r.ErrOut).To(HaveSuffix("0 of 1 hosts run rendered-infra-1; host a: UpdateFailing: see kubectl poolboot explain node a -n edge\n"))
		Expect(r.Code).To(Equal(1))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "--watch") }()
		Consistently(ended, "200ms").ShouldNot(Receive())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionTrue, "Done", "it runs it")
			c.Status.Boot.ServedConfiguration.Name = newConfig
		})
		Eventually(ended).Should(Receive(HaveField("Code", 0)))
	})

	It("have a Node that is not Ready as a problem that is retried, and not as a failure", func() {
		s := newSite(nil, withNode(done("a"), "NodeNotReady", "Node a is not Ready"), done("b"))
		r := s.run("status")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-1 2/2 2 0 <none> host a: NodeNotReady: Node a is not Ready"))
		Expect(r.Code).To(BeZero())
		r = s.run("status", "infra")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("bmh-a a NodeNotReady rendered-infra-1 rendered-infra-1 12m is not Ready"))
		Expect(r.Code).To(BeZero())
	})

	It("have no problem that only the pool reports, a moment after its hosts", func() {
		inPool := done("a")
		inPool.Status.Conditions = append(inPool.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool"})
		for _, reason := range []string{poolv1.HostsUnavailableReason, poolv1.RolloutBlockedReason} {
			r := newSite(func(p *poolv1.MachineConfigPool) {
				for _, kind := range []string{clusterv1.ReadyCondition, poolv1.UpdatedCondition} {
					p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "1 of 2 hosts have no Node that is Ready"})
				}
			}, inPool.DeepCopy()).run("status")
			Expect(clitest.Rows(r.Out)[1]).To(HavePrefix("infra rendered-infra-1 1/1 0 0 "))
			Expect(r.Out).NotTo(ContainSubstring("no Node that is Ready"))
		}
	})

	It("name no closed window because of a Node that is not Ready if nothing waits", func() {
		Expect(newSite(closed, withNode(done("a"), "NodeNotReady", "Node a is not Ready")).run("status").Code).To(BeZero())
	})

	It("lack only what columns have, also if they look like those of others", func() {
		long := "the update of Node other to x failed and was undone, so it runs y: disk full"
		s := newSite(nil, newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Degraded", "Node a runs "+oldConfig+", and its agent reports: "+long))
		Expect(clitest.Rows(s.run("status", "infra").Out)[1]).To(HaveSuffix(" 15m its agent reports: " + long))
		Expect(clitest.Rows(s.run("status").Out)[1]).To(HaveSuffix(" host a: Degraded: its agent reports: " + long))
	})

	It("have one line for each change with --watch into a file", func() {
		long := strings.Repeat("spec.updates.maintenanceWindow ", 20) + "is closed"
		out := newSite(nil, newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Degraded", long)).run("status", "infra", "--watch").Out
		Expect(strings.Split(out, "\n")).To(ContainElement(HaveSuffix(long)))
		Expect(strings.Count(out, "\n")).To(Equal(2))
	})

	It("name the limits that hold a host, and the first hosts that take the places", func() {
		ready := func(config *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
			config.Status.Conditions = append(config.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool"})
			return config
		}
		waiting := func(name string) *bootstrapv1.PoolbootConfig {
			return ready(newHost(name, oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", "Node "+name+" runs "+oldConfig+", and waits for its turn before its update: see kubectl poolboot rollout plan infra -n edge"))
		}
		cordoned := ready(newHost("a", oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", "Node a runs "+oldConfig+", and is cordoned"))
		cordoned.Status.Update.UnavailableReason = bootstrapv1.UnavailableCordoned
		pool := func(change func(*poolv1.MachineConfigPool)) func(*poolv1.MachineConfigPool) { return change }
		last := func(change func(*poolv1.MachineConfigPool), hosts ...*bootstrapv1.PoolbootConfig) string {
			rows := clitest.Rows(newSite(change, append(hosts, waiting("w"))...).run("status", "infra").Out)
			return rows[len(rows)-1]
		}
		const waits = " waits for its turn before its update"
		Expect(last(nil, ready(done("a")))).To(HaveSuffix(waits), "a turn that begins in a moment")
		Expect(last(nil)).To(HaveSuffix(waits))
		Expect(last(nil, ready(applies("b")), ready(failed("c", newConfig)))).To(HaveSuffix(waits + "; spec.maxUnavailable is 1, for b, c"))
		Expect(last(nil, applies("b"), applies("c"), applies("d"), applies("e"))).To(HaveSuffix(waits + "; spec.maxUnavailable is 1, for b, c, d and 1 more"))
		Expect(last(nil, cordoned)).To(HaveSuffix(waits + "; spec.maxUnavailable is 1, for a, which is cordoned"))
		two := pool(func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2)) })
		Expect(last(two, ready(applies("b")))).To(HaveSuffix(waits), "a place is free")
		Expect(last(pool(func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 2 }))).To(
			HaveSuffix(waits + "; spec.maxUnavailable is 1, for 1 that are gone and whose replacements have not joined"))
		Expect(last(pool(func(p *poolv1.MachineConfigPool) { two(p); p.Spec.Updates.FailureDomainLabel = "rack" }), ready(applies("b")))).To(
			HaveSuffix(waits + "; hosts with one value of rack are updated at a time, now b"))

		stages := func(maxHosts, staged int32) func(*poolv1.MachineConfigPool) {
			return func(p *poolv1.MachineConfigPool) {
				p.Spec.Updates.Staging.MaxHosts, p.Status.StagedHostCount = maxHosts, staged
				p.Status.Staging = []poolv1.StagingHost{{Host: waiting("a").Name, Revision: "next", StartTime: ptr.To(metav1.Now())}}
			}
		}
		Expect(last(stages(1, 0), waiting("a"))).To(HaveSuffix(waits + "; spec.updates.staging.maxHosts is 1, for a"))
		Expect(last(stages(1, 1), waiting("a"))).To(HaveSuffix(waits), "it has staged its update")
		Expect(last(stages(1, 1), waiting("a"), waiting("v"))).To(HaveSuffix(waits + "; if it has not staged it, spec.updates.staging.maxHosts is 1, for a"))
		Expect(last(stages(2, 0), waiting("a"))).To(HaveSuffix(waits), "a place to stage is free")
	})
})
