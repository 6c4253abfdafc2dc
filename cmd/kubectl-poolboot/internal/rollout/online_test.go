package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("plan of a pool", func() {
	It("prints who is next, and why others wait", func() {
		s := newSite(func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2)) }, done("a"), applies("b"), waits("c"), waits("d"))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(Equal(`POOL    MAXUNAVAILABLE   UNAVAILABLE   CAPACITY   NEXT
infra   2                b             1          c

POOL    HOST   WHY IT IS NOT NEXT
infra   b      Applying: Node b is being changed
infra   d      others are first, by zone and age
`))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra", "-o", "json"))).To(MatchJSON(`{"infra":{"maxUnavailable":2,"unavailable":["b"],"capacity":1,"next":["c"],"hosts":[
			{"node":"b","message":"Applying: Node b is being changed"},{"node":"d","message":"others are first, by zone and age"}]}}`))
	})

	DescribeTable("says why the pool can't be rendered, and what its hosts do until that is corrected", func(configuration, does string, change func(*poolv1.MachineConfigPool)) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			change(p)
			p.Status.Configuration.Name = configuration
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionTrue, Reason: poolv1.RenderFailedReason,
				Message: "MachineConfig 50-a: spec.butane: line 3: no; correct this, and the pool is rendered again"}}
		}, done("a"))
		out := clitest.ExpectSuccess(s.run("plan", "infra"))
		Expect(strings.Join(strings.Fields(out), " ")).To(ContainSubstring(
			"The pool infra can't be rendered: RenderFailed: MachineConfig 50-a: spec.butane: line 3: no; correct this, and the pool is rendered again. Until then, " + does + " No host of the pool infra is next: "))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra", "-o", "json"))).To(ContainSubstring(`"problem": "RenderFailed: MachineConfig 50-a`))
	},
		Entry("which is to run what it handed out last", newConfig, "the pool hands out rendered-infra-1: new hosts boot with it, and running hosts are updated to it", func(*poolv1.MachineConfigPool) {}),
		Entry("which is no update while it is paused", newConfig,
			"the paused pool hands out rendered-infra-1: new hosts boot with it, and no running host begins an update before kubectl poolboot rollout resume infra -n edge", paused),
		Entry("which is nothing if it has never been rendered", "", "no host boots or is updated", func(*poolv1.MachineConfigPool) {}),
	)

	It("names what Cluster API does to a Machine, and has a host last whose Machine is about to be replaced", func(ctx SpecContext) {
		s := newSite(nil, waits("a"), waits("b"), waits("c"))
		for name, condition := range map[string]string{"a": clusterv1.MachineUpToDateCondition, "b": clusterv1.MachineUpdatingCondition} {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "infra-1"}}}
			machine.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionFalse}}
			if condition == clusterv1.MachineUpdatingCondition {
				machine.Status.Conditions[0].Status = metav1.ConditionTrue
			}
			Expect(s.live.Create(ctx, machine)).To(Succeed())
		}
		s.change(ctx, "b", func(config *bootstrapv1.PoolbootConfig) { // the manager has not written the condition yet
			setUpdated(config, metav1.ConditionTrue, bootstrapv1.UpdateDoneReason, "Node b runs "+oldConfig)
		})
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
		Expect(s.live.Update(ctx, p)).To(Succeed())
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(Equal(`POOL    MAXUNAVAILABLE   UNAVAILABLE   CAPACITY   NEXT
infra   2                b             1          c

POOL    HOST   WHY IT IS NOT NEXT
infra   a      its Machine is about to be replaced, so others are first
infra   b      Machine b is being updated in place, and Cluster API is first: see the conditions of the Machine
`))
	})

	It("says who stages, who waits for that and who can't, and has nobody next who has not staged", func(ctx SpecContext) {
		next := strings.Repeat("2", 64)
		failing := waits("d")
		failing.Status.Conditions[0].Reason = bootstrapv1.UpdateFailingReason
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Staging.MaxHosts = 1
			entry := func(name string, ago time.Duration) poolv1.StagingHost {
				return poolv1.StagingHost{Host: waits(name).Name, Revision: next, StartTime: &metav1.Time{Time: time.Now().Add(-ago)}}
			}
			p.Status.Staging = []poolv1.StagingHost{entry("a", time.Minute), entry("b", 2*time.Hour), entry("d", time.Minute)}
		}, waits("a"), waits("b"), waits("c"), failing)
		annotate := func(name string, annotations map[string]string) {
			node := &corev1.Node{}
			Expect(s.nodes.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			maps.Copy(node.Annotations, annotations)
			Expect(s.nodes.Update(ctx, node)).To(Succeed())
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			annotate(name, map[string]string{agentv1.StagingAnnotation: revisions[oldConfig]})
		}
		for _, name := range []string{"a", "b", "d"} {
			annotate(name, map[string]string{agentv1.NextAnnotation: next})
		}
		annotate("d", map[string]string{agentv1.StagingAnnotation: next + " file /etc/f: wrong hash", agentv1.StateAnnotation: string(agentv1.Done)})
		planned := func() (p plan) {
			plans := map[string]plan{}
			Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(s.run("plan", "infra", "-o", "json"))), &plans)).To(Succeed())
			return plans["infra"]
		}
		p := planned()
		Expect(p.Next).To(BeEmpty())
		Expect(p.Reason).To(Equal("host a: its host downloads what the update needs"))
		Expect(p.Hosts).To(HaveExactElements(
			notNext{"a", "its host downloads what the update needs"},
			notNext{"b", "its agent has not said for 60m whether the update is on the host: check poolboot-agent.service on it"},
			notNext{"c", "others stage their updates first: spec.updates.staging.maxHosts is 1"},
			notNext{"d", "its host cannot stage the update, which it retries without a place: file /etc/f: wrong hash"},
		))
		annotate("a", map[string]string{agentv1.StagingAnnotation: next})
		Expect(planned().Next).To(Equal([]string{"a"}))
	})

	It("says which failure domains block which", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable, p.Spec.Updates.FailureDomainLabel = ptr.To(intstr.FromInt32(3)), "rack"
		}, applies("a"), waits("b"), waits("c"))
		for name, rack := range map[string]string{"a": "r1", "b": "r2", "c": "r1"} {
			node := &corev1.Node{}
			Expect(s.nodes.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			node.Labels["rack"] = rack
			Expect(s.nodes.Update(ctx, node)).To(Succeed())
		}
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(Equal(`POOL    MAXUNAVAILABLE   UNAVAILABLE   CAPACITY   NEXT
infra   3                a             2          c

POOL    HOST   WHY IT IS NOT NEXT
infra   a      Applying: Node a is being changed
infra   b      it is in the failure domain rack=r2, and others are unavailable or first: rack=r1 (a)
`))
	})

	It("prints no next host of a pool whose maintenance window is closed, and when it opens", func() {
		opens := time.Now().UTC().AddDate(0, 0, 7)
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: fmt.Sprintf("0 0 %d %d *", opens.Day(), opens.Month()), DurationMinutes: 1}
		}, waits("a"))
		why := "the maintenance window of MachineConfigPool infra opens at " + opens.Format(time.DateOnly) + "T00:00:00Z"
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(And(ContainSubstring("infra   1                <none>        1          <none>"), ContainSubstring("infra   a      "+why)))
		Expect(s.run("status", "infra").ErrOut).To(ContainSubstring("; " + why))
	})

	It("prints no next host of a pool with a closed update gate, and names the gate, also for a host that waits", func(ctx SpecContext) {
		const why = "the gate storage is closed: its expression is false for CephCluster rook-ceph/main"
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "storage"}}
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionFalse, Reason: poolv1.GateClosedReason, Message: why})
		}, waits("a"))
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionFalse, "Waiting", "Node a runs x, and waits for its turn before its update to y"+": see kubectl poolboot rollout plan infra -n edge")
		})
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(And(ContainSubstring("infra   1                <none>        1          <none>"), ContainSubstring("infra   a      "+why)))
		status := s.run("status", "infra")
		Expect(status.ErrOut).To(ContainSubstring("; " + why))
		Expect(clitest.Rows(s.run("status", "infra", "-o", "wide").Out)[1]).To(ContainSubstring("Node a runs x, and " + why))
	})

	DescribeTable("says why no host is next", func(change func(*poolv1.MachineConfigPool), host *bootstrapv1.PoolbootConfig, why string) {
		s := newSite(change, host)
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(ContainSubstring("\nNo host of the pool infra is next: " + why))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra", "-o", "json"))).To(ContainSubstring(`"reason": "` + why))
	},
		Entry("because all run what the pool hands out", nil, done("a"), "none waits for an update to rendered-infra-1"),
		Entry("because the pool is paused and renders another config", func(p *poolv1.MachineConfigPool) {
			paused(p)
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: poolv1.RolloutPausedReason, Message: "rendered-infra-2 waits"}}
		}, done("a"), "rendered-infra-2 waits"),
		Entry("because the pool is paused", paused, waits("a"), "the pool is paused"),
		Entry("because others hold all places", nil, applies("a"), "no other host waits for an update to rendered-infra-1"),
	)

	It("prints no next host of a paused pool", func() {
		Expect(clitest.ExpectSuccess(newSite(paused, waits("a")).run("plan", "infra"))).To(And(ContainSubstring("infra   1                <none>        1          <none>"),
			ContainSubstring("infra   a      the pool is paused: run kubectl poolboot rollout resume infra -n edge to hand out what it")))
	})

	It("says why a host is not told what is recorded for it, and that its slot takes a place before it is told", func(ctx SpecContext) {
		slot := func(p *poolv1.MachineConfigPool) {
			p.Status.Slots = []poolv1.UpdateSlot{{ID: "1", Host: "a-config", Revision: revisions[newConfig]}}
		}
		plan := func(change func(*poolv1.MachineConfigPool)) []string {
			s := newSite(change, newHost("a", oldConfig, oldConfig, metav1.ConditionFalse, "UpdateFailing", "it is retried"), waits("b"))
			s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Update.Desired.Name, c.Status.Update.DesiredRevision = newConfig, revisions[newConfig]
			})
			node := &corev1.Node{}
			Expect(s.nodes.Get(ctx, client.ObjectKey{Name: "a"}, node)).To(Succeed())
			node.Annotations[agentv1.StateAnnotation] = string(agentv1.Done)
			Expect(s.nodes.Update(ctx, node)).To(Succeed())
			return clitest.Rows(clitest.ExpectSuccess(s.run("plan", "infra")))
		}
		Expect(plan(paused)).To(ContainElement(And(HavePrefix("infra a "), ContainSubstring("the pool is paused"))))
		Expect(plan(slot)).To(ContainElement(And(HavePrefix("infra b "), ContainSubstring("these hold the places: a (it is about to be told what to run)"))))
		alone := newSite(slot, waits("a"))
		Expect(clitest.ExpectSuccess(alone.run("plan", "infra", "-o", "json"))).To(MatchJSON(`{"infra":{"maxUnavailable":1,"unavailable":["a"],"capacity":0,"next":[],
			"reason":"no other host waits for an update to rendered-infra-1","hosts":[{"node":"a","message":"Waiting: Node a waits for other hosts"}]}}`))
	})

	It("reports an agent that does not run when status does: of a host that needs no update, systemd has some time to start it again", func(ctx SpecContext) {
		s := newSite(nil, done("a"), waits("b"))
		for _, name := range []string{"a", "b"} {
			node := &corev1.Node{}
			Expect(s.nodes.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			node.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped
			Expect(s.nodes.Update(ctx, node)).To(Succeed())
			node.Status.NodeInfo.BootID = "boot-1"
			Expect(s.nodes.Status().Update(ctx, node)).To(Succeed())
		}
		notNext := func() []string {
			_, table, _ := strings.Cut(clitest.ExpectSuccess(s.run("plan", "infra")), "WHY IT IS NOT NEXT\n")
			return clitest.Rows(table)
		}
		Expect(s.run("status", "infra").Out).NotTo(ContainSubstring("AgentNotAnswering"))
		Expect(notNext()).To(ConsistOf("infra b Waiting: Node b waits for other hosts"))
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionFalse, bootstrapv1.AgentNotAnsweringReason, "its agent does not run")
		})
		Expect(s.run("status", "infra").Out).To(ContainSubstring("AgentNotAnswering"))
		Expect(notNext()).To(ContainElement("infra a AgentNotAnswering: its agent does not run"))
	})

	DescribeTable("names the only host that waits, and why it begins no update", func(ctx SpecContext, change func(*corev1.Node), says, why string) {
		s := newSite(nil, done("a"), newHost("b", oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", says))
		node := &corev1.Node{}
		Expect(s.nodes.Get(ctx, client.ObjectKey{Name: "b"}, node)).To(Succeed())
		change(node)
		Expect(s.nodes.Update(ctx, node)).To(Succeed())
		node.Status.NodeInfo.BootID = "boot-1"
		Expect(s.nodes.Status().Update(ctx, node)).To(Succeed())
		Expect(strings.Join(strings.Fields(clitest.ExpectSuccess(s.run("plan", "infra"))), " ")).To(ContainSubstring("No host of the pool infra is next: host b: " + why))
	},
		Entry("because it is cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }, "it is cordoned: kubectl uncordon b", "Waiting: it is cordoned: kubectl uncordon b"),
		Entry("because its agent does not run", func(n *corev1.Node) { n.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped },
			"its agent does not run: it has stopped", "Waiting: its agent does not run: it has stopped"),
	)

	It("counts a host with the config of its pool that the manager has wait for something else, as another agent", func() {
		Expect(clitest.ExpectSuccess(newSite(nil, newHost("a", newConfig, newConfig, metav1.ConditionFalse, "Waiting", "it waits")).run("plan", "infra"))).To(HaveSuffix(" a\n"))
	})

	It("says what it needs", func() {
		s := newSite(nil, waits("a"))
		r := clitest.RunOn(&clitest.FakeConnection{WithWatch: s.live}, newCommand, "rollout", "plan", "infra")
		clitest.ExpectError(r, 1, "the Nodes of MachineConfigPool edge/infra can't be read: secrets is forbidden")
		clitest.ExpectError(s.run("plan"), 1, "name a MachineConfigPool of the management cluster, or files with --pools and --nodes")
		clitest.ExpectError(s.run("plan", "infra", "--pools", "a", "--nodes", "b"), 1, "--pools and POOL: name either files, or the pool infra of the management cluster")
	})
})
