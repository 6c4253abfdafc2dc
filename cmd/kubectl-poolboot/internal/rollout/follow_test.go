package rollout

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("status --watch", func() {
	DescribeTable("waits while the correction of an earlier failure is handed out:", func(ctx SpecContext, host *bootstrapv1.PoolbootConfig, tell bool) {
		var others []*bootstrapv1.PoolbootConfig
		if tell { // it fails with what it is told during the watch
			host.Status.Update.Desired.Name, host.Status.Update.DesiredRevision = "rendered-infra-bad", revisions["rendered-infra-bad"]
			others = append(others, waits("b"))
		}
		s := newSite(nil, append(others, host)...)
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "--watch") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		if tell {
			s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Update.Desired.Name, c.Status.Update.DesiredRevision = newConfig, revisions[newConfig]
			})
		}
		Consistently(ended, "200ms").ShouldNot(Receive())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.UnansweredTime = nil
			setUpdated(c, metav1.ConditionFalse, "Unreconcilable", "the new one is not possible either")
		})
		Eventually(ended).Should(Receive(And(HaveField("Code", 1), HaveField("Out", ContainSubstring("the new one is not possible")))))
	},
		Entry("a unit that fails", newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "UnitsFailing", "web.service failed"), false),
		Entry("an update that failed", failed("a", ""), true),
		Entry("an agent that did not answer", func() *bootstrapv1.PoolbootConfig {
			host := newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "AgentNotAnswering", "it has not answered")
			host.Status.Update.UnansweredTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
			return host
		}(), false),
	)

	DescribeTable("does not take what a host says from before the pool observed its correction for an answer to it:", func(ctx SpecContext, change, observe func(*poolv1.MachineConfigPool)) {
		s := newSite(change, newHost("a", oldConfig, oldConfig, metav1.ConditionFalse, bootstrapv1.AssignmentFailedReason, "networkRenderer is not set"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "--watch") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		Consistently(ended, "200ms").ShouldNot(Receive())
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		observe(p)
		Expect(s.live.Status().Update(ctx, p)).To(Succeed())
		Consistently(ended, "200ms").ShouldNot(Receive())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionFalse, bootstrapv1.AssignmentFailedReason, "networkRenderer is unknown")
		})
		Eventually(ended).Should(Receive(And(HaveField("Code", 1), HaveField("Out", ContainSubstring("networkRenderer is unknown")))))
	},
		Entry("during the watch", func(p *poolv1.MachineConfigPool) { p.Generation, p.Status.ObservedGeneration = 2, 1 },
			func(p *poolv1.MachineConfigPool) { p.Status.ObservedGeneration = 2 }),
		Entry("a moment before the watch", func(p *poolv1.MachineConfigPool) {
			p.Status.History = []poolv1.HandedOutConfiguration{{Name: newConfig, StartTime: ptr.To(metav1.Now())}}
		}, func(*poolv1.MachineConfigPool) {}),
	)

	It("does not end because of a pool that can't find its inputs before the pool has looked for those that exist now", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionTrue, Reason: poolv1.WorkerPoolMissingReason, Message: "create it"}}
		}, done("a"))
		Expect(s.run("status", "infra", "--watch").ErrOut).To(HaveSuffix("create it\n"))
		Expect(s.live.Create(ctx, &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "worker"}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: poolv1.RoleWorker}})).To(Succeed())
		Expect(s.run("status", "infra", "--watch", "--timeout", "300ms").ErrOut).To(ContainSubstring("--timeout 300ms expired"))
	})

	It("ends if the agent does not answer to the correction either", func() {
		DeferCleanup(func(patience time.Duration) { answerPatience = patience }, answerPatience)
		answerPatience = 100 * time.Millisecond
		host := newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "AgentNotAnswering", "it has not answered")
		host.Status.Update.UnansweredTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
		Expect(newSite(nil, host).run("status", "infra", "--watch", "--timeout", "1m").ErrOut).To(HaveSuffix("AgentNotAnswering: see kubectl poolboot explain node a -n edge\n"))
	})

	It("prints a line with the time for every change until all hosts are updated", func(ctx SpecContext) {
		line := func(start string) OmegaMatcher { return MatchRegexp(`^\d\d:\d\d:\d\d ` + start) }
		s := newSite(nil, done("a"), waits("b"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "-w", "--timeout", "1m") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		s.change(ctx, "b", func(c *bootstrapv1.PoolbootConfig) { setUpdated(c, metav1.ConditionFalse, "Rebooting", "it reboots") })
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.TokenRevokedTime = ptr.To(metav1.NowMicro()) }) // no line
		s.change(ctx, "b", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionTrue, "Done", "it runs it")
			c.Status.Boot.ServedConfiguration.Name = newConfig
		})
		var r clitest.Result
		Eventually(ended).Should(Receive(&r))
		Expect(clitest.Rows(r.Out)).To(HaveExactElements(HavePrefix("TIME HOST"), line("bmh-a a Done"), line("bmh-b b Waiting"), line("bmh-b b Rebooting"), line("bmh-b b Done")))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 2 of 2 hosts run rendered-infra-1\n"))
		Expect(r.Code).To(BeZero())
	})

	It("ends when the pool is deleted", func(ctx SpecContext) {
		s := newSite(nil, waits("a"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "-w") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		Expect(s.live.Delete(ctx, &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra"}})).To(Succeed())
		var r clitest.Result
		Eventually(ended).Should(Receive(&r))
		Expect(r.ErrOut).To(ContainSubstring("MachineConfigPool edge/infra was deleted"))
		Expect(r.Code).To(Equal(1))
	})

	It("does not end before the pool has rendered what was changed a moment ago", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "infra"}}
			p.Status.InputsHash = strings.Repeat("0", 64)
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionTrue, Reason: "RenderFailed", Message: "that was before"}}
		}, done("a"))
		worker := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "worker"}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: poolv1.RoleWorker}}
		changed := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "50-infra", Generation: 2, Labels: map[string]string{"role": "infra"}}}
		Expect(s.live.Create(ctx, worker)).To(Succeed())
		Expect(s.live.Create(ctx, changed)).To(Succeed())
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "-w", "--timeout", "1m") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		rendered := func(name string) {
			p := &poolv1.MachineConfigPool{}
			Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
			id, err := pool.InputsID("infra", []poolv1.MachineConfigPool{*p, *worker}, []poolv1.MachineConfig{*changed})
			Expect(err).NotTo(HaveOccurred())
			p.Status.InputsHash, p.Status.Configuration.Name, p.Status.Conditions = id, name, nil
			Expect(s.live.Status().Update(ctx, p)).To(Succeed())
		}
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { setUpdated(c, metav1.ConditionTrue, "Done", "still") })
		Consistently(ended, "200ms").ShouldNot(Receive())
		rendered("rendered-infra-2")
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.ServedConfiguration.Name = "rendered-infra-2" })
		var r clitest.Result
		Eventually(ended).Should(Receive(&r))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 1 of 1 hosts run rendered-infra-2\n"))
		Expect(r.Code).To(BeZero())
	})
})
