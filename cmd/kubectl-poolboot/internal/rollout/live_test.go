package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

const oldConfig, newConfig = "rendered-infra-0", "rendered-infra-1"

// revisions are those of configs.
var revisions = map[string]string{oldConfig: strings.Repeat("0", 64), newConfig: strings.Repeat("1", 64), "rendered-infra-bad": strings.Repeat("b", 64)}

// site is a management cluster with a pool that hands out newConfig, and its workload cluster.
type site struct {
	live  client.WithWatch
	nodes client.WithWatch
	// watches counts the watches that were opened.
	watches atomic.Int32
}

// newSite returns a site with hosts. change can change the pool.
func newSite(change func(*poolv1.MachineConfigPool), hosts ...*bootstrapv1.PoolbootConfig) *site {
	p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra"},
		Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: "infra"}}
	p.Status.Configuration.Name = newConfig
	if change != nil {
		change(p)
	}
	objects, nodes := []client.Object{p}, []client.Object{}
	for _, h := range hosts {
		objects, nodes = append(objects, h), append(nodes, nodeOf(h))
	}
	s := &site{nodes: clitest.NewFakeClientBuilder(nodes...).Build()}
	s.live = clitest.NewFakeClientBuilder(objects...).WithStatusSubresource(p, &bootstrapv1.PoolbootConfig{}).
		WithIndex(p, "metadata.name", func(object client.Object) []string { return []string{object.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := c.List(ctx, list, options...)
				list.SetResourceVersion("1") // as an API server has one for every list
				return err
			},
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				changes, err := c.Watch(ctx, list, options...)
				s.watches.Add(1)
				return changes, err
			},
		}).Build()
	return s
}

func (s *site) run(args ...string) clitest.Result {
	return clitest.RunOn(&clitest.FakeConnection{WithWatch: s.live, Own: s.nodes}, newCommand, append([]string{"rollout"}, args...)...)
}

// change changes the status of the host on a Node.
func (s *site) change(ctx context.Context, node string, change func(*bootstrapv1.PoolbootConfig)) {
	GinkgoHelper()
	config := &bootstrapv1.PoolbootConfig{}
	Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: node + "-config"}, config)).To(Succeed())
	before := config.DeepCopy()
	change(config)
	Expect(s.live.Status().Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
}

// newHost returns a host that runs a config and was told to run one, with its condition Updated of five minutes ago.
func newHost(name, runs, told string, status metav1.ConditionStatus, reason, message string) *bootstrapv1.PoolbootConfig {
	config := clitest.PoolbootConfig("infra", name, name)
	record.RevokeToken(config)
	config.Status.NodeRef.UID = "uid-" + name
	config.Status.HostRef = bootstrapv1.HostReference{Namespace: "edge", Name: "bmh-" + name, UID: "1"}
	config.Status.Configuration.Name = runs
	config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = told, revisions[told]
	setUpdated(config, status, reason, message)
	return config
}

func setUpdated(config *bootstrapv1.PoolbootConfig, status metav1.ConditionStatus, reason, message string) {
	config.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.UpdatedCondition, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-5 * time.Minute).Truncate(time.Second))}}
}

// nodeOf returns the Ready Node of a host, as its agent annotates it. Nodes are older in the order of their names.
func nodeOf(config *bootstrapv1.PoolbootConfig) *corev1.Node {
	name := config.Status.NodeRef.Name
	state := config.Status.Conditions[0].Reason
	if state == bootstrapv1.UpdateWaitingReason {
		state = string(agentv1.Done)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(config.Status.NodeRef.UID), CreationTimestamp: metav1.NewTime(time.Unix(int64(name[len(name)-1]), 0)),
		Labels: map[string]string{"node-role.kubernetes.io/infra": ""}, Annotations: map[string]string{
			agentv1.DesiredAnnotation: config.Status.Update.DesiredRevision, agentv1.CurrentAnnotation: revisions[config.Status.Configuration.Name],
			agentv1.TargetAnnotation: config.Status.Update.DesiredRevision, agentv1.StateAnnotation: state, agentv1.AgentAnnotation: "v1",
		}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// Hosts in states of a rollout.
func done(name string) *bootstrapv1.PoolbootConfig {
	return newHost(name, newConfig, newConfig, metav1.ConditionTrue, "Done", "Node "+name+" runs "+newConfig)
}

func waits(name string) *bootstrapv1.PoolbootConfig {
	return newHost(name, oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", "Node "+name+" waits for other hosts")
}

func applies(name string) *bootstrapv1.PoolbootConfig {
	return newHost(name, oldConfig, newConfig, metav1.ConditionFalse, "Applying", "Node "+name+" is being changed")
}

func failed(name, config string) *bootstrapv1.PoolbootConfig {
	return newHost(name, oldConfig, config, metav1.ConditionFalse, "Degraded", "the update of Node "+name+" failed")
}

func paused(p *poolv1.MachineConfigPool) {
	p.Spec.Paused, p.Spec.PausedConfiguration.Name = ptr.To(true), newConfig
}

// words returns the words of each line.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

var _ = Describe("status", func() {
	It("prints the hosts of the pool, and how many are updated", func() {
		booting := done("booting")
		booting.Annotations = nil
		other := done("other")
		other.Status.PoolRole = "gpu"
		r := newSite(nil, waits("c"), done("a"), applies("b"), other, booting).run("status", "infra")
		Expect(words(r.Out)).To(Equal([]string{
			"HOST NODE STATE CURRENT DESIRED SINCE MESSAGE",
			"bmh-a a Done rendered-infra-1 rendered-infra-1 5m Node a runs rendered-infra-1",
			"bmh-b b Applying rendered-infra-0 rendered-infra-1 5m Node b is being changed",
			"bmh-c c Waiting rendered-infra-0 rendered-infra-1 5m Node c waits for other hosts",
		}))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 1 of 3 hosts run rendered-infra-1\n"))
		Expect(r.Code).To(BeZero())
	})

	It("does not call a host updated that the manager has not looked at since the pool hands out another config", func() {
		r := newSite(nil, newHost("a", oldConfig, oldConfig, metav1.ConditionTrue, "Done", "Node a runs "+oldConfig)).run("status", "infra")
		Expect(words(r.Out)[1]).To(HavePrefix("bmh-a a Waiting rendered-infra-0 rendered-infra-1"))
		Expect(r.ErrOut).To(ContainSubstring("0 of 1 hosts"))
	})

	DescribeTable("fails with the reason", func(change func(*poolv1.MachineConfigPool), host *bootstrapv1.PoolbootConfig, why string, args ...string) {
		r := newSite(change, host).run(append([]string{"status", "infra"}, args...)...)
		Expect(r.Code).To(Equal(1))
		Expect(r.ErrOut).To(ContainSubstring("error: " + why))
	},
		Entry("if an update failed", nil, failed("a", newConfig), "PoolbootConfig edge/a-config: Degraded: the update of Node a failed"),
		Entry("if an update failed, with --watch", nil, failed("a", newConfig), "PoolbootConfig edge/a-config: Degraded: the update of Node a failed", "--watch"),
		Entry("if the pool cannot be rendered", func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionTrue, Reason: "RenderFailed", Message: "MachineConfig 50-a: no"}}
		}, done("a"), "MachineConfigPool edge/infra: MachineConfig 50-a: no"),
		Entry("if a paused pool would never complete", paused, waits("a"), "MachineConfigPool edge/infra: it is paused, and hosts wait: run kubectl poolboot rollout resume infra -n edge", "--watch"),
		Entry("after --timeout, also of a paused pool whose hosts complete their updates", paused, applies("a"),
			"--timeout 100ms expired: MachineConfigPool edge/infra: 0 of 1 hosts run rendered-infra-1; the pool is paused", "--watch", "--timeout", "100ms"),
		Entry("after --timeout", nil, waits("a"), "--timeout 100ms expired: MachineConfigPool edge/infra: 0 of 1 hosts run rendered-infra-1", "--watch", "--timeout", "100ms"),
	)

	It("does not fail because of an update to an earlier config", func() {
		r := newSite(nil, failed("a", "rendered-infra-bad")).run("status", "infra")
		Expect(r.Code).To(BeZero())
	})

	It("ends at once with --watch if all hosts are updated", func() {
		Expect(newSite(paused, done("a")).run("status", "infra", "--watch").Code).To(BeZero())
	})

	It("prints a line for every change with --watch until all hosts are updated", func(ctx SpecContext) {
		s := newSite(nil, done("a"), waits("b"))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "-w", "--timeout", "1m") }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		s.change(ctx, "b", func(c *bootstrapv1.PoolbootConfig) { setUpdated(c, metav1.ConditionFalse, "Rebooting", "it reboots") })
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.TokenRevokedTime = ptr.To(metav1.NowMicro()) }) // no line
		s.change(ctx, "b", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionTrue, "Done", "it runs it")
			c.Status.Configuration.Name = newConfig
		})
		var r clitest.Result
		Eventually(ended).Should(Receive(&r))
		Expect(words(r.Out)).To(HaveExactElements(HavePrefix("HOST"), HavePrefix("bmh-a a Done"), HavePrefix("bmh-b b Waiting"), HavePrefix("bmh-b b Rebooting"), HavePrefix("bmh-b b Done")))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 2 of 2 hosts run rendered-infra-1\n"))
		Expect(r.Code).To(BeZero())
	})

	It("ends with --watch when the pool is deleted", func(ctx SpecContext) {
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

	It("does not end with --watch before the pool has rendered what was changed a moment ago", func(ctx SpecContext) {
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
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Configuration.Name = "rendered-infra-2" })
		var r clitest.Result
		Eventually(ended).Should(Receive(&r))
		Expect(r.ErrOut).To(Equal("MachineConfigPool edge/infra: 1 of 1 hosts run rendered-infra-2\n"))
		Expect(r.Code).To(BeZero())
	})

	It("prints the versions of agents with -o wide", func() {
		a := done("a")
		a.Status.Update.AgentVersion = "v0.1.0"
		r := newSite(nil, a, done("b")).run("status", "infra", "-o", "wide")
		Expect(words(r.Out)).To(Equal([]string{
			"HOST NODE STATE CURRENT DESIRED SINCE AGENT MESSAGE",
			"bmh-a a Done rendered-infra-1 rendered-infra-1 5m v0.1.0 Node a runs rendered-infra-1",
			"bmh-b b Done rendered-infra-1 rendered-infra-1 5m <none> Node b runs rendered-infra-1",
		}))
	})

	It("prints JSON", func() {
		r := newSite(nil, done("a")).run("status", "infra", "-o", "json")
		Expect(clitest.ExpectSuccess(r)).To(And(HavePrefix("[\n"), ContainSubstring(`"poolbootConfig": "a-config"`), ContainSubstring(`"state": "Done"`)))
		clitest.ExpectError(newSite(nil).run("status", "infra", "-o", "json", "-w"), 1, "leave out --output json")
	})
})

var _ = Describe("plan of a pool", func() {
	It("prints who is next, and why others wait", func() {
		s := newSite(func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2)) }, done("a"), applies("b"), waits("c"), waits("d"))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(Equal(`POOL    MAXUNAVAILABLE   UNAVAILABLE   CAPACITY   NEXT
infra   2                b             1          c

POOL    HOST   WHY IT IS NOT NEXT
infra   b      Applying: Node b is being changed
infra   d      others are first, by zone and age
`))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra", "-o", "json"))).To(MatchJSON(`{"infra":{"maxUnavailable":2,"unavailable":["b"],"capacity":1,"next":["c"]}}`))
	})

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

	It("says which failure domains block which", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable, p.Spec.FailureDomainLabel = ptr.To(intstr.FromInt32(3)), "rack"
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
			p.Spec.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: fmt.Sprintf("0 0 %d %d *", opens.Day(), opens.Month()), DurationMinutes: 1}
		}, waits("a"))
		why := "the maintenance window of MachineConfigPool infra opens at " + opens.Format(time.DateOnly) + "T00:00:00Z"
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(And(ContainSubstring("infra   1                <none>        1          <none>"), ContainSubstring("infra   a      "+why)))
		Expect(s.run("status", "infra").ErrOut).To(ContainSubstring("; " + why))
	})

	It("prints no next host of a pool with a closed update gate, and names the gate", func() {
		const why = "the gate storage is closed: its expression is false for CephCluster rook-ceph/main"
		s := newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.UpdateGates = []poolv1.UpdateGate{{Name: "storage"}}
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionFalse, Reason: poolv1.GateClosedReason, Message: why})
		}, waits("a"))
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(And(ContainSubstring("infra   1                <none>        1          <none>"), ContainSubstring("infra   a      "+why)))
		Expect(s.run("status", "infra").ErrOut).To(ContainSubstring("; " + why))
	})

	It("prints no next host of a paused pool", func() {
		Expect(clitest.ExpectSuccess(newSite(paused, waits("a")).run("plan", "infra"))).To(And(ContainSubstring("infra   1                <none>        1          <none>"),
			ContainSubstring("infra   a      the pool is paused: set spec.paused of MachineConfigPool infra to false to update it")))
	})

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

var _ = Describe("pause and resume", func() {
	read := func(ctx context.Context, s *site) poolv1.MachineConfigPoolSpec {
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		return p.Spec
	}

	It("change spec.paused, and do nothing a second time", func(ctx SpecContext) {
		s := newSite(nil)
		Expect(clitest.ExpectSuccess(s.run("pause", "infra"))).To(Equal("MachineConfigPool edge/infra is paused: hosts that have begun an update complete it, and no other host begins one\n"))
		Expect(read(ctx, s).Paused).To(HaveValue(BeTrue()))
		Expect(clitest.ExpectSuccess(s.run("pause", "infra"))).To(Equal("MachineConfigPool edge/infra is already paused\n"))
		Expect(clitest.ExpectSuccess(s.run("resume", "infra"))).To(Equal("MachineConfigPool edge/infra is resumed: see kubectl poolboot rollout status infra -n edge\n"))
		Expect(read(ctx, s).Paused).To(HaveValue(BeFalse()))
		Expect(clitest.ExpectSuccess(s.run("resume", "infra"))).To(Equal("MachineConfigPool edge/infra is not paused\n"))
	})

	It("set what a paused pool hands out, also if it is paused already", func(ctx SpecContext) {
		s := newSite(nil)
		for _, configuration := range []string{oldConfig, newConfig} {
			Expect(clitest.ExpectSuccess(s.run("pause", "infra", "--configuration", configuration))).To(ContainSubstring("is paused and hands out " + configuration))
			Expect(read(ctx, s)).To(And(HaveField("Paused", HaveValue(BeTrue())), HaveField("PausedConfiguration.Name", configuration)))
		}
		Expect(clitest.ExpectSuccess(s.run("pause", "infra", "--configuration", newConfig))).To(ContainSubstring("is already paused"))
	})

	It("remove pausedConfiguration together with the pause", func(ctx SpecContext) {
		s := newSite(paused)
		Expect(s.run("resume", "infra").Code).To(BeZero())
		Expect(read(ctx, s).PausedConfiguration.Name).To(BeEmpty())
	})

	It("report the field that could not be written", func() {
		s := newSite(nil)
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("forbidden")
		}})
		clitest.ExpectError(s.run("pause", "infra"), 1, "patch spec.paused of MachineConfigPool edge/infra: forbidden")
	})
})

var _ = Describe("retry", func() {
	forced := func(ctx context.Context, s *site) (names []string) {
		configs := &bootstrapv1.PoolbootConfigList{}
		Expect(s.live.List(ctx, configs)).To(Succeed())
		for _, c := range configs.Items {
			if c.Annotations[bootstrapv1.ForceUpdateAnnotation] != "" {
				names = append(names, c.Name)
			}
		}
		return names
	}

	It("forces the hosts whose update failed, with another value each time", func(ctx SpecContext) {
		s := newSite(nil, failed("a", newConfig), waits("b"), done("c"), failed("d", newConfig))
		Expect(clitest.ExpectSuccess(s.run("retry", "infra"))).To(Equal("PoolbootConfig edge/a-config: Node a applies its configuration again\n" +
			"PoolbootConfig edge/d-config: Node d applies its configuration again\n"))
		Expect(forced(ctx, s)).To(ConsistOf("a-config", "d-config"))
		value := func() string {
			config := &bootstrapv1.PoolbootConfig{}
			Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "a-config"}, config)).To(Succeed())
			return config.Annotations[bootstrapv1.ForceUpdateAnnotation]
		}
		first := value()
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Update.Force = first }) // it failed again
		Expect(s.run("retry", "infra").Code).To(BeZero())
		Expect(value()).NotTo(Equal(first))
	})

	It("is followed by status, which does not fail because of the update before it", func(ctx SpecContext) {
		s := newSite(nil, failed("a", newConfig))
		Expect(s.run("retry", "infra").Code).To(BeZero())
		r := s.run("status", "infra")
		Expect(r.Code).To(BeZero())
		Expect(words(r.Out)[1]).To(ContainSubstring("Waiting rendered-infra-0 rendered-infra-1 5m Node a has not been told yet to apply its configuration again: the update of Node a failed"))
		config := &bootstrapv1.PoolbootConfig{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "a-config"}, config)).To(Succeed())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.Force = config.Annotations[bootstrapv1.ForceUpdateAnnotation]
		})
		Expect(s.run("status", "infra")).To(And(HaveField("Code", 1), HaveField("ErrOut", ContainSubstring("PoolbootConfig edge/a-config: Degraded: the update of Node a failed"))))
	})

	It("changes nothing if no update failed", func(ctx SpecContext) {
		s := newSite(nil, waits("a"), done("b"), failed("c", "rendered-infra-bad"))
		Expect(clitest.ExpectSuccess(s.run("retry", "infra"))).To(Equal("MachineConfigPool edge/infra: no host needs it\n"))
		Expect(forced(ctx, s)).To(BeEmpty())
	})

	DescribeTable("forces a host in any state", func(ctx SpecContext, name string) {
		s := newSite(nil, failed("a", newConfig), done("b"))
		Expect(s.run("retry", "infra", "--host", name).Code).To(BeZero())
		Expect(forced(ctx, s)).To(ConsistOf("b-config"))
	},
		Entry("by its Node", "b"),
		Entry("by its BareMetalHost", "bmh-b"),
		Entry("by its PoolbootConfig", "b-config"),
	)

	It("forces no host if one of them is not in the pool", func(ctx SpecContext) {
		other := done("other")
		other.Status.PoolRole = "gpu"
		s := newSite(nil, done("a"), other)
		clitest.ExpectError(s.run("retry", "infra", "--host", "a,other"), 1, "--host: MachineConfigPool edge/infra has no running host other: see kubectl poolboot rollout status infra -n edge")
		Expect(forced(ctx, s)).To(BeEmpty())
	})

	It("reports what could not be written", func() {
		s := newSite(nil, failed("a", newConfig))
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("forbidden")
		}})
		clitest.ExpectError(s.run("retry", "infra"), 1, "patch the annotation pool.cluster.x-k8s.io/force-update of PoolbootConfig edge/a-config: forbidden")
	})
})

var _ = Describe("history", func() {
	newRendered := func(name string, minute int64, spec string) *poolv1.MachineConfig {
		c := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"},
			CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Duration(60-minute) * time.Minute)),
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Cluster", Name: "infra-1", UID: "1"}}}}
		if spec != "" {
			c.Spec.Config = &runtime.RawExtension{Raw: []byte(spec)}
		}
		return c
	}

	It("lists the rendered configs with their hosts and changes, the oldest first", func(ctx SpecContext) {
		s := newSite(nil, done("a"), applies("b"), waits("c"))
		for _, c := range []*poolv1.MachineConfig{
			newRendered(newConfig, 20, `{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/sdb","wipeTable":true}],"files":[{"path":"/etc/a","contents":{"source":"data:,2"}},{"path":"/etc/b"}]},"systemd":{"units":[{"name":"a.service"}]}}`),
			newRendered(oldConfig, 10, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,1"}}]}}`),
		} {
			Expect(s.live.Create(ctx, c)).To(Succeed())
		}
		Expect(words(clitest.ExpectSuccess(s.run("history", "infra")))).To(Equal([]string{
			"CONFIG OWNER AGE HANDED OUT RUNNING TOLD CHANGES",
			"rendered-infra-0 Cluster/infra-1 50m no 2 0 <none>",
			"rendered-infra-1 Cluster/infra-1 40m yes 1 1 disk: 1, file: 2, unit: 1",
		}))
		Expect(clitest.ExpectSuccess(s.run("history", "infra", "-o", "json"))).To(And(ContainSubstring(`"changes": null`), ContainSubstring(`"file": 2`)))
	})

	It("says if there is none", func() {
		Expect(newSite(nil).run("history", "infra").ErrOut).To(Equal("MachineConfigPool edge/infra has no rendered config: see its conditions\n"))
	})
})

var _ = DescribeTable("A command about a pool refuses", func(command string) {
	s := newSite(nil)
	clitest.ExpectError(s.run(command, "nope"), 1, `namespace edge contains no MachineConfigPool "nope": correct the name, or set --namespace`)
	clitest.ExpectError(s.run(command, "infra", "gpu"), 1, `"gpu": name one MachineConfigPool only`)
	if command != "plan" {
		clitest.ExpectError(s.run(command), 1, "the name of a MachineConfigPool is missing")
	}
},
	Entry("status", "status"), Entry("plan", "plan"), Entry("pause", "pause"), Entry("resume", "resume"), Entry("history", "history"),
)
