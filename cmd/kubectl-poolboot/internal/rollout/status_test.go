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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("status", func() {
	const holdsBack = "the pool is paused and hands out rendered-infra-1, while rendered-infra-2 waits"
	holding := func(p *poolv1.MachineConfigPool) {
		paused(p)
		p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: poolv1.RolloutPausedReason, Message: holdsBack}}
	}

	It("prints the hosts of the pool, and how many are updated", func() {
		booting := joining()
		other := done("other")
		other.Status.PoolRole = "gpu"
		r := newSite(nil, waits("c"), done("a"), applies("b"), other, booting).run("status", "infra")
		Expect(clitest.Rows(r.Out)).To(Equal([]string{
			"HOST NODE STATE CURRENT DESIRED SINCE MESSAGE",
			"bmh-a a Done rendered-infra-1 rendered-infra-1 15m runs rendered-infra-1",
			"bmh-b b Applying rendered-infra-0 rendered-infra-1 15m is being changed",
			"bmh-c c Waiting rendered-infra-0 rendered-infra-1 15m waits for other hosts",
			"bmh-booting booting Joining <none> rendered-infra-1 15m its kubelet is not Ready yet",
		}))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 1 of 4 hosts run rendered-infra-1\n"))
		Expect(r.Code).To(BeZero())
	})

	It("counts a host that runs what the pool hands out although its units fail", func() {
		r := newSite(nil, newHost("a", newConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UnitsFailingReason, "web.service: it failed")).run("status", "infra")
		Expect(r.ErrOut).To(ContainSubstring("1 of 1 hosts run rendered-infra-1\n"))
		Expect(r.ErrOut).To(ContainSubstring("error: host a: UnitsFailing: see kubectl poolboot explain node a -n edge\n"))
		Expect(r.Code).To(Equal(1))
	})

	It("does not call a host updated that the manager has not looked at since the pool hands out another config", func() {
		r := newSite(nil, newHost("a", oldConfig, oldConfig, metav1.ConditionTrue, "Done", "Node a runs "+oldConfig)).run("status", "infra")
		Expect(clitest.Rows(r.Out)[1]).To(HavePrefix("bmh-a a Waiting rendered-infra-0 rendered-infra-1"))
		Expect(r.ErrOut).To(ContainSubstring("0 of 1 hosts"))
	})

	It("prints a line for each pool without the name of one, with what is wrong in it", func(ctx SpecContext) {
		broken := failed("b", newConfig)
		s := newSite(nil, done("a"), broken, applies("c"))
		for _, node := range []string{"a", "b", "c"} {
			s.change(ctx, node, func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool"})
			})
		}
		held := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "far", Name: "gpu"}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: "infra"}}
		holding(held)
		held.Status.Configuration.Name = "rendered-gpu-6a593b40aaaaaaaaaaaaaaaaaaaaaaaa"
		held.Status.Conditions = append(held.Status.Conditions, metav1.Condition{Type: poolv1.ReadyCondition, LastTransitionTime: metav1.NewTime(time.Now().Add(-3 * time.Hour))})
		Expect(s.live.Create(ctx, held)).To(Succeed())

		r := s.run("status", "-A")
		Expect(clitest.Rows(r.Out)).To(Equal([]string{
			"NAMESPACE POOL CONFIG UPDATED AWAY FAILED SINCE PROBLEM",
			"edge infra rendered-infra-1 1/3 1 1 <none> host b: Degraded: the update of Node b failed: run kubectl poolboot rollout retry infra -n edge --host b",
			"far gpu gpu@6a593b40 0/0, paused 0 0 3h " + holdsBack,
		}))
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Code).To(Equal(1))
		Expect(s.run("status", "-o", "json").Out).To(ContainSubstring(`"failed": 1`))
		clitest.ExpectError(s.run("status", "infra", "-A"), 1, "--all-namespaces and POOL: leave out the flag, or infra")
	})

	It("begins a message with the cause, and repeats no name of the columns", func() {
		drain := newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Draining", "Node a is drained to run "+newConfig+". The drain takes longer than spec.updates.drainTimeoutSeconds (600): Pod web")
		drain.Status.Update.Stage, drain.Status.Update.StageTime = bootstrapv1.UpdateDraining, &metav1.Time{Time: time.Now().Add(-time.Hour)}
		s := newSite(nil, drain, newHost("b", oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", "Node b waits"))
		Expect(clitest.Rows(s.run("status", "infra").Out)[1:]).To(HaveExactElements(HaveSuffix(" 60m The drain takes longer than spec.updates.drainTimeoutSeconds (600): Pod web"), HaveSuffix(" 15m waits")))
		Expect(clitest.Rows(s.run("status").Out)[1]).To(HaveSuffix("host a: Draining: The drain takes longer than spec.updates.drainTimeoutSeconds (600): Pod web"))
	})

	DescribeTable("has the same columns with --watch from the first line on, also for longer states and configs", func(ctx SpecContext, reason string) {
		s := newSite(func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = "" }, waits("a"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "--watch", "--timeout", "2s") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionFalse, reason, "stopped")
			c.Status.Boot.ServedConfiguration.Name = "rendered-infra-" + strings.Repeat("0", 32)
		})
		lines := strings.Split((<-ended).Out, "\n")
		Expect(strings.Index(lines[2], "stopped")).To(Equal(strings.Index(lines[0], "MESSAGE")), strings.Join(lines, "\n"))
	},
		Entry("AgentNotAnswering", bootstrapv1.AgentNotAnsweringReason),
		Entry("CertificateNotAccepted", bootstrapv1.CertificateNotAcceptedReason),
	)

	It("shows a long message whole in a file", func() {
		why := strings.Repeat("web.service and what it needs failed, ", 40) + "END"
		s := newSite(nil, newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Degraded", why))
		for _, args := range [][]string{{"status", "infra"}, {"status", "infra", "--watch"}, {"status"}} {
			r := s.run(args...)
			Expect(strings.TrimSpace(r.Out)).To(HaveSuffix("END"))
			Expect(r.ErrOut).NotTo(ContainSubstring("…"))
		}
	})

	It("shows the beginning of a long message once on a terminal, in two lines, without what other columns have", func() {
		why := "the configuration enables it: " + strings.Repeat("web.service and what it needs failed, ", 40) + "END"
		long := newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Degraded", "the update of Node a to "+newConfig+" failed and was undone, so it runs "+oldConfig+": "+why)
		s := newSite(nil, long, done("b"))
		for _, args := range [][]string{{"status", "infra"}, {"status", "infra", "--watch"}} {
			r := s.runOnTerminal(args...)
			lines := strings.Split(strings.TrimSpace(r.Out), "\n")
			Expect(lines).To(HaveLen(4), "the header, two lines of a, one of b")
			Expect(lines[1]).To(ContainSubstring("the configuration enables"))
			Expect(lines[2]).To(HaveSuffix("…"))
			Expect(r.ErrOut).NotTo(ContainSubstring("web.service"))
			Expect(r.ErrOut).To(ContainSubstring("Texts that end with … are longer: to see all of them, add -o wide\n"))
			Expect(r.ErrOut).To(HaveSuffix("error: host a: Degraded: see kubectl poolboot explain node a -n edge\n"))
		}
		Expect(strings.Split(strings.TrimSpace(s.runOnTerminal("status").Out), "\n")).To(HaveLen(4), "the header, and three lines of the pool")
		for _, args := range [][]string{{"status", "infra", "-o", "wide"}, {"status", "-o", "wide"}, {"status", "infra", "-o", "json"}} {
			r := s.run(args...)
			Expect(r.Out).To(ContainSubstring(", END"))
			Expect(r.ErrOut).NotTo(ContainSubstring("…"))
		}
	})

	DescribeTable("fails with the reason", func(change func(*poolv1.MachineConfigPool), host *bootstrapv1.PoolbootConfig, why string, args ...string) {
		r := newSite(change, host).run(append([]string{"status", "infra"}, args...)...)
		Expect(r.Code).To(Equal(1))
		Expect(r.ErrOut).To(ContainSubstring("error: " + why))
	},
		Entry("if an update failed", nil, failed("a", newConfig), "host a: Degraded: see kubectl poolboot explain node a -n edge\n"),
		Entry("if an update failed, with --watch", nil, failed("a", newConfig), "host a: Degraded: see kubectl poolboot explain node a -n edge\n", "--watch"),
		Entry("if the pool cannot be rendered", func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionTrue, Reason: "RenderFailed", Message: "MachineConfig 50-a: no"}}
		}, done("a"), "MachineConfigPool edge/infra: MachineConfig 50-a: no"),
		Entry("after --timeout, also of a paused pool whose hosts complete their updates", paused, applies("a"),
			"--timeout 100ms expired: MachineConfigPool edge/infra: 0 of 1 hosts run rendered-infra-1; the pool is paused", "--watch", "--timeout", "100ms"),
		Entry("after --timeout", nil, waits("a"), "--timeout 100ms expired: MachineConfigPool edge/infra: 0 of 1 hosts run rendered-infra-1", "--watch", "--timeout", "100ms"),
	)

	It("shows which hosts stage their update, and how many have", func() {
		r := newSite(func(p *poolv1.MachineConfigPool) {
			p.Status.StagedHostCount = 4
			p.Status.Staging = []poolv1.StagingHost{{Host: waits("a").Name, Revision: "next", StartTime: &metav1.Time{Time: time.Now().Add(-time.Minute)}}}
		}, waits("a")).run("status", "infra")
		Expect(r.Out).To(And(ContainSubstring(" Staging "), ContainSubstring("its host downloads what the update to\n")))
		Expect(r.ErrOut).To(ContainSubstring("0 of 1 hosts run rendered-infra-1; 1 stage their update, 4 have staged it"))
	})

	blocked := func(p *poolv1.MachineConfigPool) {
		p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: poolv1.RolloutBlockedReason, Message: "these are unavailable: b"}}
	}
	unreadable := func(p *poolv1.MachineConfigPool) {
		p.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "storage"}}
		p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionFalse, Reason: poolv1.GateUnreadableReason, Message: "the gate storage can't be read"}}
	}
	It("fails if an update gate can't be read while a host waits", func() {
		for _, args := range [][]string{{"status", "infra"}, {"status", "infra", "-w"}} {
			r := newSite(unreadable, waits("a")).run(args...)
			Expect(r.ErrOut).To(HaveSuffix("error: MachineConfigPool edge/infra: the gate storage can't be read\n"))
			Expect(r.Code).To(Equal(1))
		}
		Expect(newSite(unreadable, done("a")).run("status", "infra").Code).To(BeZero())
	})

	DescribeTable("has the exit code 2, and says what holds the hosts back,", func(change func(*poolv1.MachineConfigPool), host *bootstrapv1.PoolbootConfig, why string, args ...string) {
		r := newSite(change, host).run(append([]string{"status", "infra"}, args...)...)
		Expect(r.ErrOut).To(And(HavePrefix("error: "), ContainSubstring(why)))
		Expect(r.Code).To(Equal(2))
	},
		Entry("if a paused pool holds back another config", holding, done("a"), "MachineConfigPool edge/infra: 1 of 1 hosts run rendered-infra-1; "+holdsBack),
		Entry("if a paused pool holds back another config, with --watch", holding, done("a"), holdsBack, "--watch"),
		Entry("if hosts of a paused pool wait", paused, waits("a"), "0 of 1 hosts run rendered-infra-1; the pool is paused: ", "--watch"),
		Entry("if the maintenance window is closed", closed, waits("a"), "0 of 1 hosts run rendered-infra-1; the maintenance window of MachineConfigPool infra opens at "),
		Entry("if unavailable hosts take all places", blocked, waits("a"), "0 of 1 hosts run rendered-infra-1; these are unavailable: b"),
		Entry("after --timeout, if unavailable hosts take all places", blocked, waits("a"), "; these are unavailable: b", "--watch", "--timeout", "100ms"),
		Entry("after --timeout, if the maintenance window is closed", closed, waits("a"), "--timeout 100ms expired: MachineConfigPool edge/infra: 0 of 1", "--watch", "--timeout", "100ms"),
	)

	It("has the exit code 3 with --watch if the pool renders another config before all hosts run the first", func(ctx SpecContext) {
		s := newSite(nil, waits("a"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "-w", "--timeout", "1m") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		p.Status.Configuration.Name = "rendered-infra-2"
		Expect(s.live.Status().Update(ctx, p)).To(Succeed())
		var r clitest.Result
		Eventually(ended).Should(Receive(&r))
		Expect(r.ErrOut).To(Equal("error: MachineConfigPool edge/infra hands out rendered-infra-2 in place of rendered-infra-1: run the command again to follow it\n"))
		Expect(r.Code).To(Equal(3))
	})

	nodeMissing := func() *bootstrapv1.PoolbootConfig {
		return withNode(newHost("a", newConfig, newConfig, metav1.ConditionUnknown, bootstrapv1.NodeMissingReason, "see the condition NodeInPool"), "NodeMissing", "Node a does not exist: restart")
	}

	DescribeTable("fails with the cause if a Node needs a person:", func(host func() *bootstrapv1.PoolbootConfig, reason, message string) {
		s := newSite(nil, host(), done("b"))
		r := s.run("status", "infra")
		Expect(clitest.Rows(r.Out)[1]).To(Equal(strings.Join([]string{"bmh-a a", reason, newConfig, newConfig, "12m", strings.TrimPrefix(message, "Node a ")}, " ")))
		why, see := "host a: "+reason+": "+message, "host a: "+reason+": see kubectl poolboot explain node a -n edge"
		Expect(r.ErrOut).To(HaveSuffix("error: " + see + "\n"))
		Expect(r.Code).To(Equal(1))
		r = s.run("status")
		Expect(clitest.Rows(r.Out)[1]).To(And(HavePrefix("infra rendered-infra-1 2/2 "), HaveSuffix(" 1 <none> "+why)))
		Expect(r.Code).To(Equal(1))
		r = s.run("status", "infra", "--watch", "--timeout", "500ms")
		Expect(strings.TrimSpace(r.ErrOut)).To(HaveSuffix(see))
		Expect(r.Code).To(Equal(1))
	},
		Entry("it was deleted", nodeMissing, "NodeMissing", "Node a does not exist: restart"),
		Entry("its labels name two pools", func() *bootstrapv1.PoolbootConfig {
			return withNode(newHost("a", newConfig, newConfig, metav1.ConditionFalse, "Waiting", "it follows no pool"), "PoolConflict", "Node a has the labels of two pools")
		}, "PoolConflict", "Node a has the labels of two pools"),
		Entry("its labels name no pool", func() *bootstrapv1.PoolbootConfig {
			return withNode(done("a"), "NodeOutsidePool", "no pool selects the labels of Node a")
		}, "NodeOutsidePool", "no pool selects the labels of Node a"),
	)

	DescribeTable("does not call a Node failed that is expected to be not Ready", func(change func(*bootstrapv1.PoolbootConfig), code int) {
		host := withNode(applies("a"), "NodeNotReady", "Node a is not Ready")
		change(host)
		Expect(newSite(nil, host).run("status").Code).To(Equal(code))
	},
		Entry("in an update", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.Stage, c.Status.Update.StageTime = bootstrapv1.UpdateRebooting, ptr.To(metav1.Now())
		}, 0),
		Entry("since a moment ago, in an update whose stage is not recorded yet", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.Stage, c.Status.Conditions[1].LastTransitionTime = bootstrapv1.UpdateStarting, metav1.Now()
		}, 0),
		Entry("but one that does not return from its update", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.Stage, c.Status.Conditions[0].Reason = bootstrapv1.UpdateRebooting, bootstrapv1.UpdateOverdueReason
		}, 1),
		Entry("while Cluster API changes the Machine", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.UnavailableReason = bootstrapv1.UnavailableMachineChanging
		}, 0),
	)

	It("has a Node as a problem that is not Ready when its host is told what to run, and its agent does not answer", func() {
		told := withNode(newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Waiting", "its agent has 10m0s to answer"), "NodeNotReady", "Node a is not Ready")
		told.Status.Update.Stage, told.Status.Update.StageTime, told.Status.Update.UnansweredTime = bootstrapv1.UpdateStarting, ptr.To(metav1.Now()), ptr.To(metav1.Now())
		s := newSite(nil, told)
		r := s.run("status")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-1 0/1 1 0 <none> host a: NodeNotReady: Node a is not Ready"))
		Expect(r.Code).To(BeZero())
		Expect(clitest.Rows(s.run("status", "infra").Out)[1]).To(Equal("bmh-a a NodeNotReady rendered-infra-0 rendered-infra-1 12m is not Ready"))
	})

	It("counts the hosts of a paused pool as kubectl get does, and has no problem if nothing waits", func() {
		r := newSite(func(p *poolv1.MachineConfigPool) {
			holding(p)
			p.Status.UpdatedHostCount, p.Status.RenderedConfiguration = ptr.To[int32](0), "rendered-infra-2"
		}, done("a")).run("status")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-2 0/1, paused 1 0 <none> "+holdsBack), "CONFIG is the one that UPDATED counts")
		Expect(r.Code).To(Equal(2))
		r = newSite(paused, done("a")).run("status")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-1 1/1, paused 1 0 <none> <none>"))
		Expect(r.Code).To(BeZero())
		Expect(newSite(paused, done("a")).run("status", "infra").ErrOut).To(HaveSuffix("1 of 1 hosts run rendered-infra-1; the pool is paused\n"))
	})

	It("has Machines that cannot boot as a problem, in the line of their pool, or in one of their own without a pool", func(ctx SpecContext) {
		s := newSite(nil, done("a"))
		for name, role := range map[string]string{"b": "infra", "c": "", "d": "deleted"} {
			config := clitest.PoolbootConfig("infra", name, name)
			config.Status.NodeRef, config.Status.PoolRole = bootstrapv1.NodeReference{}, role
			config.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.PoolNotFoundReason, Message: "no pool"}}
			Expect(s.live.Create(ctx, config)).To(Succeed())
		}
		r := s.run("status")
		Expect(clitest.Rows(r.Out)).To(HaveExactElements(HavePrefix("POOL"),
			"<none> <none> 0/0 0 2 <none> hosts that do not boot or are in no pool: 2, see kubectl poolboot boots -n edge",
			"infra rendered-infra-1 1/2 2 1 <none> hosts that do not boot: 1, see kubectl poolboot boots -n edge"))
		Expect(r.Code).To(Equal(1))

		r = s.run("status", "infra")
		Expect(clitest.Rows(r.Out)).To(HaveExactElements(HavePrefix("HOST"), HavePrefix("bmh-a a Done"),
			"<none> <none> PoolNotFound <none> rendered-infra-1 <none> PoolbootConfig b-config: no pool"))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 1 of 2 hosts run rendered-infra-1\nerror: host b: PoolNotFound: see kubectl poolboot boots -n edge\n"))
		Expect(r.Code).To(Equal(1))
	})

	It("counts a host that has not joined as one that is away", func() {
		Expect(clitest.Rows(newSite(nil, done("a"), joining()).run("status").Out)[1]).To(HavePrefix("infra rendered-infra-1 1/2 2 0"))
	})

	It("counts a host whose Node has the labels of two pools as one that failed, and not as one that is away", func() {
		Expect(clitest.Rows(newSite(nil, withNode(done("a"), bootstrapv1.PoolConflictReason, "two pools")).run("status").Out)[1]).To(HavePrefix("infra rendered-infra-1 1/1 0 1"))
	})

	It("counts a host that was told to begin as one that is away, since then, and not as one that is held back", func() {
		told := newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Waiting", "Node a was told")
		told.Status.Update.Stage, told.Status.Update.StageTime = bootstrapv1.UpdateStarting, &metav1.Time{Time: time.Now().Add(-12 * time.Minute)}
		told.Status.Conditions = append(told.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool"})
		r := newSite(closed, told).run("status", "infra")
		Expect(clitest.Rows(r.Out)[1]).To(ContainSubstring(" 12m was told"))
		Expect(r.Code).To(BeZero())
		Expect(clitest.Rows(newSite(nil, told.DeepCopy()).run("status").Out)[1]).To(HavePrefix("infra rendered-infra-1 0/1 1 0"))
	})

	It("says since when a host is in its state, and not since when it is not Done", func() {
		since := func(config *bootstrapv1.PoolbootConfig, ago time.Duration) string {
			config.Status.Update.StateTime = &metav1.Time{Time: time.Now().Add(-ago)}
			return clitest.Rows(newSite(nil, config).run("status", "infra").Out)[1]
		}
		Expect(since(failed("a", newConfig), 20*time.Hour)).To(ContainSubstring(" 20h "))
		Expect(since(waits("a"), 30*time.Hour)).To(ContainSubstring(" 30h "))
		untold := newHost("a", oldConfig, oldConfig, metav1.ConditionTrue, "Done", "Node a runs "+oldConfig)
		Expect(since(untold, time.Hour)).To(ContainSubstring(" <none> has not been told yet"), "the pool hands out another one since a moment ago")
	})

	It("has a drain that takes longer than drainTimeoutSeconds as a problem with the exit code of what holds hosts back, and not as a failure", func() {
		drains := func(name string, ago time.Duration) *bootstrapv1.PoolbootConfig {
			config := newHost(name, oldConfig, newConfig, metav1.ConditionFalse, "Draining", "Pod web remains")
			config.Status.Update.Stage, config.Status.Update.StageTime = bootstrapv1.UpdateDraining, &metav1.Time{Time: time.Now().Add(-ago)}
			return config
		}
		s := newSite(nil, drains("a", 9*time.Minute), drains("b", 11*time.Minute))
		r := s.run("status")
		Expect(r.Code).To(Equal(2))
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-1 0/2 2 0 <none> host b: Draining: Pod web remains"))
		Expect(s.run("status", "infra")).To(And(HaveField("Code", 2), HaveField("ErrOut", "error: host b: Draining: see kubectl poolboot explain node b -n edge\n")))
		Expect(newSite(paused, drains("b", 11*time.Minute)).run("status", "infra", "--watch", "--timeout", "200ms")).To(And(HaveField("Code", 2), HaveField("ErrOut", ContainSubstring("--timeout 200ms expired"))))
		Expect(clitest.ExpectSuccess(newSite(nil, drains("a", 9*time.Minute)).run("status"))).NotTo(ContainSubstring("PoolbootConfig"))
	})

	It("waits with --watch for a Node that is not Ready", func(ctx SpecContext) {
		s := newSite(nil, withNode(done("a"), "NodeNotReady", "Node a is not Ready"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "--watch") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		Consistently(ended, "200ms").ShouldNot(Receive())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Conditions = c.Status.Conditions[:1] })
		Eventually(ended).Should(Receive(HaveField("Code", 0)))
	})

	It("does not fail because of an update to an earlier config", func() {
		r := newSite(nil, failed("a", "rendered-infra-bad")).run("status", "infra")
		Expect(r.Code).To(BeZero())
	})

	It("ends at once with --watch if all hosts are updated", func() {
		Expect(newSite(paused, done("a")).run("status", "infra", "--watch").Code).To(BeZero())
	})

	It("does not end with --watch before kubectl get shows that the pool is updated", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) { p.Status.UpdatedHostCount = ptr.To[int32](1) }, done("a"), done("b"))
		result := make(chan clitest.Result, 1)
		go func() { result <- s.run("status", "infra", "--watch") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		Consistently(result, "200ms").ShouldNot(Receive())
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		p.Status.UpdatedHostCount = ptr.To[int32](2)
		Expect(s.live.Status().Update(ctx, p)).To(Succeed())
		Eventually(result).Should(Receive(HaveField("Code", 0)))
	})

	It("counts a host that differs from its configuration as one that runs it, as the pool does", func() {
		s := newSite(nil, done("a"), newHost("b", newConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UpdateDegradedReason, "the host differs from it"))
		Expect(s.run("status", "infra").ErrOut).To(ContainSubstring("2 of 2 hosts run rendered-infra-1"))
		Expect(s.run("status").Out).To(ContainSubstring("2/2"))
	})
})
