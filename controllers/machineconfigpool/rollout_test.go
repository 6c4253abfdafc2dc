package machineconfigpool

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// follower returns the PoolbootConfig of a running host of infra that follows its pool and runs an earlier config. The
// reason is that of its condition Updated.
func follower(name, reason string) *bootstrapv1.PoolbootConfig {
	c := joined(machine(name, "infra", "rendered-infra-0", true))
	c.Status.Update.DesiredRevision = strings.Repeat("0", 64)
	setPhase(c, reason)
	return c
}

// setPhase sets the condition Updated of a running host.
func setPhase(c *bootstrapv1.PoolbootConfig, reason string) {
	status := metav1.ConditionFalse
	if reason == bootstrapv1.UpdateDoneReason {
		status = metav1.ConditionTrue
	}
	conditions.Set(c, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: status, Reason: reason, Message: reason + ": see the host"})
}

var _ = Describe("The rollout of a pool", func() {
	var s *fixture
	BeforeEach(func() {
		s = newFixture(cluster(), newPool("worker", "worker", 2), newPool("infra", "infra", 1), config("50-infra", "infra", "0"),
			follower("m1", bootstrapv1.UpdateWaitingReason), follower("m2", bootstrapv1.UpdateWaitingReason))
		s.reconcile("infra")
		controllertest.Events(s.events)
	})
	becomes := func(name, reason string) *poolv1.MachineConfigPool {
		GinkgoHelper()
		return s.becomes(name, reason)
	}
	eventReasons := func() (reasons []string) {
		for _, e := range controllertest.Events(s.events) {
			reasons = append(reasons, strings.Fields(e)[1])
		}
		return reasons
	}

	It("begins with the first host that is updated, ends with the last one, and has an event for each", func() {
		Expect(s.pool("infra").Status.Rollout).To(BeZero(), "no host is updated yet")
		p := becomes("m1", bootstrapv1.UpdateDrainingReason)
		name := p.Status.Configuration.Name
		started := p.Status.Rollout.StartTime
		Expect(started).NotTo(BeNil())
		Expect(p.Status.Rollout).To(And(HaveField("Configuration", name), HaveField("CompletionTime", BeNil())))
		Expect(controllertest.Events(s.events)).To(ConsistOf("Normal RolloutStarted 2 of 2 hosts change to " + name))

		becomes("m1", bootstrapv1.UpdateDoneReason)
		p = becomes("m2", bootstrapv1.UpdateVerifyingReason)
		Expect(p.Status.Rollout.StartTime).To(Equal(started), "the second host belongs to the same rollout")
		Expect(eventReasons()).To(BeEmpty())
		p = becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p.Status.Rollout.CompletionTime).NotTo(BeNil())
		Expect(controllertest.Events(s.events)).To(ConsistOf(HavePrefix("Normal RolloutCompleted 2 of 2 hosts run " + name + ", after ")))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))

		writes := s.writes
		s.reconcile("infra")
		Expect(s.writes).To(Equal(writes))
	})

	It("stops when the hosts whose update failed leave no room for others, and ends when the change is reverted", func() {
		becomes("m1", bootstrapv1.UpdateApplyingReason)
		eventReasons()
		p := becomes("m1", bootstrapv1.UpdateDegradedReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason, "1 of 2 hosts cannot be updated (m1)"))
		Expect(p).To(haveCondition(poolv1.NodeDegradedCondition, yes, poolv1.HostsDegradedReason, "m1: Degraded: see the host"))
		Expect(p.Status.DegradedHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(controllertest.Events(s.events)).To(ConsistOf("Warning RolloutStopped 1 of 2 hosts cannot be updated to " +
			p.Status.Configuration.Name + " or have units that fail, and 1 wait: see the condition NodeDegraded of the pool"))
		s.reconcile("infra")
		Expect(eventReasons()).To(BeEmpty())

		becomes("m1", bootstrapv1.UpdateDoneReason)
		p = becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p.Status.Rollout.CompletionTime).NotTo(BeNil())
		Expect(eventReasons()).To(ConsistOf("RolloutCompleted"))
	})

	It("does not stop at hosts whose update to an earlier configuration failed: they are next", func() {
		failed := becomes("m2", bootstrapv1.UpdateApplyingReason).Status.Configuration.Name
		c := follower("m1", "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.Desired.Name = failed
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		becomes("m1", bootstrapv1.UpdateDegradedReason)
		s.set(config("50-infra", "infra", "0"), "1")
		s.reconcile("infra")
		restored := s.reconcile("infra").Status.Configuration.Name
		Expect(restored).NotTo(Equal(failed))
		controllertest.Events(s.events)
		p := becomes("m2", bootstrapv1.UpdateWaitingReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason, "2 of 2 hosts wait for their update (m1, m2)"))
		Expect(eventReasons()).To(BeEmpty(), "nothing failed with "+restored)
	})

	It("stops at a host of which a unit fails with the new configuration, names the unit, and ends when none fails", func() {
		becomes("m1", bootstrapv1.UpdateApplyingReason)
		becomes("m1", bootstrapv1.UpdateDoneReason)
		eventReasons()
		p := becomes("m1", bootstrapv1.UnitsFailingReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason,
			"1 of 2 hosts have units that fail (m1): each takes a place of spec.maxUnavailable: correct the MachineConfig"))
		Expect(eventReasons()).To(ConsistOf("RolloutStopped"))

		p = becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p.Status.Rollout.CompletionTime).To(BeNil())
		Expect(eventReasons()).To(BeEmpty())
		p = becomes("m1", bootstrapv1.UpdateDoneReason)
		Expect(p.Status.Rollout.CompletionTime).NotTo(BeNil())
		Expect(eventReasons()).To(ConsistOf("RolloutCompleted"))
	})

	It("has no host that waits and blocks itself while one whose units fail is told to run the next configuration", func() {
		becomes("m1", bootstrapv1.UpdateDoneReason)
		c := follower("m1", "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.Stage = bootstrapv1.UpdateStarting
		c.Status.Boot.ServedConfiguration.Name = "rendered-infra-0"
		Expect(s.Status().Update(ctx(), withProblem(c, bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeNotReadyReason, "it is not Ready"))).To(Succeed())
		p := becomes("m1", bootstrapv1.UnitsFailingReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason, "1 of 2 hosts are being updated (m1)"))
	})

	It("stops at a host whose agent does not answer", func() {
		p := becomes("m1", bootstrapv1.AgentNotAnsweringReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason, "1 of 2 hosts cannot be updated (m1)"))
		Expect(p).To(haveCondition(poolv1.NodeDegradedCondition, yes, poolv1.HostsDegradedReason, "m1: AgentNotAnswering: see the host"))
		Expect(eventReasons()).To(ConsistOf("RolloutStopped"))
	})

	It("stops when only hosts wait whose agents do not run, and not before", func() {
		for _, name := range []string{"m1", "m2"} { // they run what they were told
			c := follower(name, "")
			Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
			c.Status.Update.RunningRevision = c.Status.Update.DesiredRevision
			Expect(s.Status().Update(ctx(), c)).To(Succeed())
		}
		Expect(becomes("m1", bootstrapv1.AgentNotAnsweringReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason))
		Expect(eventReasons()).To(BeEmpty())
		p := becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason, "m1"))
		Expect(controllertest.Events(s.events)).To(ConsistOf(HavePrefix("Warning RolloutStopped 1 of 2 hosts cannot be updated to " + p.Status.Configuration.Name)))
	})

	It("goes on beside a host that differs from what it runs, which waits for its update like the others", func() {
		c := follower("m1", "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.RunningRevision = c.Status.Update.DesiredRevision
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		p := becomes("m1", bootstrapv1.UpdateDegradedReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason))
		Expect(p).To(haveCondition(poolv1.NodeDegradedCondition, yes, poolv1.HostsDegradedReason, "m1: Degraded: see the host"))
		Expect(eventReasons()).To(BeEmpty())
	})

	It("is that of a machine's own part, too, and stops if that fails", func() {
		becomes("m1", bootstrapv1.UpdateDoneReason)
		p := becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))
		eventReasons()
		runs := func(name, revision string) {
			c := follower(name, "")
			Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
			c.Status.Update.RunningRevision = strings.Repeat(revision, 64)
			Expect(s.Status().Update(ctx(), c)).To(Succeed())
		}
		runs("m1", "f") // another one than is recorded
		runs("m2", "0")
		becomes("m2", bootstrapv1.UpdateWaitingReason)
		p = becomes("m1", bootstrapv1.UpdateApplyingReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason, "(m1)"))
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(0)))
		Expect(controllertest.Events(s.events)).To(ConsistOf("Normal RolloutStarted 2 of 2 hosts run " + p.Status.Configuration.Name + ", and change to another assignment of it"))
		p = becomes("m1", bootstrapv1.UpdateDegradedReason)
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason, "1 of 2 hosts cannot be updated (m1)"))
		Expect(eventReasons()).To(ConsistOf("RolloutStopped"))

		runs("m1", "0") // the same condition is that of a difference, and stops nothing
		becomes("m2", bootstrapv1.UpdateDoneReason)
		p = becomes("m1", bootstrapv1.UpdateDegradedReason)
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))
		Expect(p).To(haveCondition(poolv1.NodeDegradedCondition, yes, poolv1.HostsDegradedReason))
		Expect(eventReasons()).To(ConsistOf("RolloutCompleted"))
	})

	It("counts the hosts without an agent", func() {
		becomes("m1", bootstrapv1.UpdateDoneReason)
		becomes("m2", bootstrapv1.UpdateDoneReason)
		p := becomes("m1", bootstrapv1.NoAgentReason)
		Expect(p.Status.AgentlessHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason, "; 1 of them run no agent"))
	})

	It("counts the hosts that keep other disks, which are updated", func() {
		becomes("m1", bootstrapv1.UpdateDoneReason)
		p := becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p.Status.OutdatedDisksHostCount).To(HaveValue(BeZero()))
		c := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: p.Namespace, Name: "m1"}, c)).To(Succeed())
		c.Status.Update.OutdatedDisks = []string{"disk /dev/sdb"}
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		p = s.reconcile("infra")
		Expect(p.Status.OutdatedDisksHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(2)))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason,
			"; 1 of them keep the disks with which they were installed, and get those of the configuration when they are installed again: see docs/pools.md#renewing-machines"))
	})

	It("has not stopped while the limit leaves room for another host", func() {
		p := s.pool("infra")
		two := intstr.FromInt32(2)
		p.Spec.MaxUnavailable = &two
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(becomes("m1", bootstrapv1.UpdateUnreconcilableReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason))
		Expect(becomes("m2", bootstrapv1.UpdateApplyingReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason))
		Expect(becomes("m2", bootstrapv1.UpdateDoneReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason))
	})

	It("has stopped if the only failure domain with a host that could not be updated has none that waits", func() {
		p := s.pool("infra")
		two := intstr.FromInt32(2)
		p.Spec.MaxUnavailable, p.Spec.Updates.FailureDomainLabel = &two, "example.com/rack"
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(becomes("m1", bootstrapv1.UpdateDegradedReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason), "the next host may be about to begin")
		key := client.ObjectKeyFromObject(p)
		result, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: key})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically("~", stuckPatience, time.Second))
		Expect(eventReasons()).To(BeEmpty())

		c := follower("m2", "") // it downloads
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		for _, stage := range []bootstrapv1.UpdateStage{bootstrapv1.UpdateStarting, ""} {
			s.reconciler.cacheOf(key).stuckSince = time.Now().Add(-stuckPatience)
			c.Status.Update.Stage = stage
			Expect(s.Status().Update(ctx(), c)).To(Succeed())
			if stage != "" {
				Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason))
			}
		}
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason, "1 of 2 hosts cannot be updated (m1)"))
		Expect(eventReasons()).To(ConsistOf("RolloutStarted", "RolloutStopped"))
		s.reconciler.deleteCache(key)
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason), "after a restart")
		Expect(becomes("m2", bootstrapv1.UpdateApplyingReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason))
	})

	DescribeTable("does not include a host that runs the pool's configuration and follows no pool, because", func(reason string) {
		becomes("m1", bootstrapv1.UpdateDoneReason)
		becomes("m2", bootstrapv1.UpdateDoneReason)
		eventReasons()
		c := follower("m2", "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.RunningRevision = c.Status.Update.DesiredRevision
		withProblem(c, bootstrapv1.NodeInPoolCondition, reason, "")
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		p := becomes("m2", bootstrapv1.UpdateWaitingReason)
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(2)))
		Expect(p.Status.ReadyHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUnavailableReason))
		Expect(eventReasons()).To(BeEmpty())
	},
		Entry("its Node has the labels of none", bootstrapv1.NodeOutsidePoolReason),
		Entry("its Node has the labels of two", bootstrapv1.PoolConflictReason),
		Entry("its Node has the label of a control plane", bootstrapv1.ControlPlaneNodeReason),
	)

	DescribeTable("names the unavailable hosts that block it", func(label, reason string, dead ...string) {
		p := s.pool("infra")
		three := intstr.FromInt32(3)
		p.Spec.MaxUnavailable, p.Spec.Updates.FailureDomainLabel = &three, label
		Expect(s.Update(ctx(), p)).To(Succeed())
		for _, name := range dead {
			c := follower(name, bootstrapv1.UpdateWaitingReason)
			conditions.Set(c, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeNotReadyReason})
			Expect(s.Create(ctx(), c)).To(Succeed())
		}
		p = s.reconcile("infra")
		expected := haveCondition(poolv1.UpdatingCondition, yes, reason)
		if reason == poolv1.RolloutBlockedReason {
			expected = haveCondition(poolv1.UpdatingCondition, yes, reason, "while these are unavailable ("+strings.Join(dead, ", ")+"): correct these hosts")
		}
		Expect(p).To(expected)
		Expect(becomes("m1", bootstrapv1.UpdateApplyingReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason))
	},
		Entry("in two failure domains, for which maxUnavailable leaves room", "example.com/rack", poolv1.RolloutBlockedReason, "m3", "m4"),
		Entry("which take all places", "", poolv1.RolloutBlockedReason, "m3", "m4", "m5"),
		Entry("and none if they leave room for another host", "", poolv1.HostsPendingReason, "m3", "m4"),
	)

	DescribeTable("names a host that blocks it although its Node is Ready", func(reason bootstrapv1.UnavailableReason, what string) {
		c := follower("m1", "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.UnavailableReason = reason
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		p := s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutBlockedReason, "while these are unavailable (m1: "+string(reason)+"): "+what))
		Expect(p.Status.UnavailableHostCount).To(HaveValue(BeZero()), "its Node is Ready")
		Expect(becomes("m2", bootstrapv1.UpdateApplyingReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason))
		Expect(becomes("m2", bootstrapv1.UpdateDoneReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutBlockedReason), "no other host waits")
	},
		Entry("because it is cordoned", bootstrapv1.UnavailableCordoned, "uncordon those"),
		Entry("because its kubelet fails", bootstrapv1.UnavailableKubeletFailing, "uncordon those that are cordoned, wait until Cluster API has completed what it does to the others, or correct them"),
		Entry("because Cluster API works on its Machine", bootstrapv1.UnavailableMachineChanging, "uncordon those that are cordoned, wait until Cluster API"),
	)

	It("begins again if a newer config supersedes the one that is rolling out", func() {
		first := becomes("m1", bootstrapv1.UpdateApplyingReason).Status.Rollout
		eventReasons()
		other := config("50-infra", "infra", "0")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(other), other)).To(Succeed())
		s.set(other, "1")
		p := s.reconcile("infra")
		Expect(p.Status.Rollout.Configuration).To(And(Equal(p.Status.Configuration.Name), Not(Equal(first.Configuration))))
		Expect(p.Status.Rollout.CompletionTime).To(BeNil())
		Expect(eventReasons()).To(ContainElement("RolloutStarted"))
	})

	It("begins with an event that counts only hosts that run another configuration", func() {
		name := becomes("m1", bootstrapv1.UpdateDoneReason).Status.Configuration.Name
		c := follower("m1", "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.RunningRevision = strings.Repeat("0", 64)
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		becomes("m1", bootstrapv1.UpdateWaitingReason) // for what the pool handed out a moment ago
		becomes("m2", bootstrapv1.UpdateDrainingReason)
		Expect(controllertest.Events(s.events)).To(ConsistOf("Normal RolloutStarted 1 of 2 hosts change to " + name))
	})

	It("is never Updating while the pool is paused, also while a host completes what it began", func() {
		s.pause(true)
		Expect(becomes("m1", bootstrapv1.UpdateRebootingReason)).To(haveCondition(poolv1.UpdatingCondition, no, poolv1.HostsUpdatingReason))
	})

	It("is counted again when a host begins or ends its update, and not for each of its steps", func() {
		changed := func(from, to string) bool {
			return countsDiffer(event.UpdateEvent{ObjectOld: follower("m1", from), ObjectNew: follower("m1", to)})
		}
		Expect(changed(bootstrapv1.UpdateWaitingReason, bootstrapv1.UpdateDrainingReason)).To(BeTrue())
		Expect(changed(bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason)).To(BeFalse())
		Expect(changed(bootstrapv1.UpdateVerifyingReason, bootstrapv1.UpdateDegradedReason)).To(BeTrue())
	})
})
