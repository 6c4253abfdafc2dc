package rollout_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// clusterPools are the pools worker and infra of a Cluster, and their hosts.
type clusterPools struct {
	pools []poolv1.MachineConfigPool
	hosts map[string][]*rollout.Host
}

func (c *clusterPools) worker() *poolv1.MachineConfigPool { return &c.pools[0] }
func (c *clusterPools) infra() *poolv1.MachineConfigPool  { return &c.pools[1] }

// host returns a host by its name.
func (c *clusterPools) host(name string) *rollout.Host {
	for _, hosts := range c.hosts {
		for _, h := range hosts {
			if h.Name() == name {
				return h
			}
		}
	}
	return nil
}

// change changes the Node of a host.
func (c *clusterPools) change(name string, change func(*corev1.Node)) {
	h := c.host(name)
	change(h.Node)
	h.Report = rollout.ReportOf(h.Node)
}

// newClusterPools returns a pool worker with the hosts w1 and w2, and a pool infra with i1 and i2. Hosts whose names
// end with the same digit are in one rack.
func newClusterPools(now time.Time) *clusterPools {
	c := &clusterPools{hosts: map[string][]*rollout.Host{}}
	for _, role := range []string{poolv1.RoleWorker, "infra"} {
		p := poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role, ResourceVersion: "1"}}
		p.Spec.PoolRole, p.Status.SlotsOpenTime = role, &metav1.Time{Time: now.Add(-time.Hour)}
		c.pools = append(c.pools, p)
		for _, digit := range []string{"1", "2"} {
			h := newRunning()
			name := role[:1] + digit
			h.Config.Name, h.Config.Status.NodeRef = name, bootstrapv1.NodeReference{Name: name, UID: name}
			h.Node.Name, h.Node.UID, h.Node.Labels = name, types.UID(name), map[string]string{"rack": digit}
			h.Report = rollout.ReportOf(h.Node)
			c.hosts[role] = append(c.hosts[role], h)
		}
	}
	return c
}

var _ = Describe("The limit for all pools of a Cluster", func() {
	now := timeOf("2026-11-21T12:00:00Z")
	const one = "spec.updates.cluster of MachineConfigPool worker limits all pools, and 1 of 4 hosts can be unavailable at a time, now "
	const remedy = ": wait for these, or correct them"

	notReady := func(name string) func(*clusterPools) {
		return func(c *clusterPools) {
			c.change(name, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		}
	}
	fails := func(c *clusterPools) {
		c.host("w2").Config.Status.Update.DesiredRevision = newRevision
		c.change("w2", func(n *corev1.Node) {
			n.Annotations[agentv1.DesiredAnnotation], n.Annotations[agentv1.TargetAnnotation], n.Annotations[agentv1.StateAnnotation] = newRevision, newRevision, string(agentv1.Degraded)
		})
	}
	slot := func(host string) func(*clusterPools) {
		return func(c *clusterPools) {
			c.worker().Status.Slots = append(c.worker().Status.Slots, poolv1.UpdateSlot{ID: "1", Host: host, Revision: newRevision})
		}
	}
	intent := func(pool, version, host string, ago time.Duration) func(*clusterPools) {
		return func(c *clusterPools) {
			c.worker().Status.SlotIntents = []poolv1.SlotIntent{{Pool: pool, PoolVersion: version, Host: host, Time: &metav1.Time{Time: now.Add(-ago)}}}
		}
	}
	skips := func(c *clusterPools) {
		fails(c)
		c.worker().Spec.Updates.Exceptions = []poolv1.UpdateException{{Node: "w2", Action: poolv1.ExceptionSkip, Until: &metav1.Time{Time: now.Add(time.Hour)}, Reason: "x"}}
	}
	limit := func(value intstr.IntOrString) func(*clusterPools) {
		return func(c *clusterPools) { c.worker().Spec.Updates.Cluster.MaxUnavailable = &value }
	}
	racks := func(c *clusterPools) {
		c.worker().Spec.Updates.Cluster = poolv1.ClusterUpdateSettings{FailureDomainLabel: "rack"}
	}

	DescribeTable("lets i1 of the pool infra begin, or says why not", func(why string, changes ...func(*clusterPools)) {
		c := newClusterPools(now)
		limit(intstr.FromInt32(1))(c)
		for _, change := range changes {
			change(c)
		}
		roles, hostsOf := sets.New("gone"), func(role string) []*rollout.Host { return c.hosts[role] }
		beginning := c.host("i1").ForRollout(c.infra(), newRevision, nil, rollout.Hold{})
		fit, closed := rollout.CountCluster(c.infra(), c.pools, hostsOf, roles, now).Fit([]rollout.Candidate{beginning})
		if why == "" {
			Expect(closed).To(BeNil())
			Expect(fit.UnsortedList()).To(ConsistOf("i1"))
			return
		}
		Expect(fit).To(BeEmpty())
		Expect(closed).To(Equal(&rollout.ClosedGate{Reason: poolv1.ClusterLimitReason, Why: why}))
	},
		Entry("nobody is away", ""),
		Entry("a host of another pool is not Ready", one+"w2"+remedy, notReady("w2")),
		Entry("two can be away", "", notReady("w2"), limit(intstr.FromInt32(2))),
		Entry("49% of 4 is one", one+"w2"+remedy, notReady("w2"), limit(intstr.FromString("49%"))),
		Entry("50% of 4 is two", "", notReady("w2"), limit(intstr.FromString("50%"))),
		Entry("a limit that can't be read", "spec.updates.cluster of MachineConfigPool worker limits all pools, and its maxUnavailable: is \"x\": set a number of at least 1, or set a percentage such as \"10%\"",
			limit(intstr.FromString("x"))),
		Entry("a host of another pool has a slot, and was not told yet", one+"w1"+remedy, slot("w1")),
		Entry("a host with a slot is gone, and nobody knows whether it is away", "spec.updates.cluster of MachineConfigPool worker limits all pools, and 1 of 5 hosts can be unavailable at a time, now gone"+remedy, slot("gone")),
		Entry("the update of a host of another pool failed", one+"w2"+remedy, fails),
		Entry("and an exception skips that host", "", skips),
		Entry("a host of another pool was not replaced", "spec.updates.cluster of MachineConfigPool worker limits all pools, and 1 of 5 hosts can be unavailable at a time, now worker: gone host 1"+remedy,
			func(c *clusterPools) { c.worker().Status.CapacityHostCount = 3 }),
		Entry("a host that has moved is in two pools, and counts once", one+"w2"+remedy, notReady("w2"), func(c *clusterPools) { c.hosts["infra"] = append(c.hosts["infra"], c.host("w2")) }),
		Entry("a host of a pool that was deleted is not Ready", one+"w2"+remedy, func(c *clusterPools) {
			notReady("w2")(c)
			c.hosts["gone"], c.hosts[poolv1.RoleWorker] = c.hosts[poolv1.RoleWorker][1:], c.hosts[poolv1.RoleWorker][:1]
		}),

		Entry("another pool is about to give a slot", one+"w1"+remedy, intent(poolv1.RoleWorker, "1", "w1", time.Second)),
		Entry("its own intent, which it writes again", "", intent("infra", "1", "i2", time.Second)),
		Entry("the other pool has another version, so its slots say what came of it", "", intent(poolv1.RoleWorker, "0", "w1", time.Second)),
		Entry("the other pool does not exist", "", intent("gone", "1", "w1", time.Second)),
		Entry("the intent is older than a write takes", "", intent(poolv1.RoleWorker, "1", "w1", rollout.IntentLife+time.Second)),
		Entry("the intent is from a clock that is ahead", "", intent(poolv1.RoleWorker, "1", "w1", -rollout.IntentLife-time.Second)),

		Entry("another pool has not built its slots", "spec.updates.cluster of MachineConfigPool worker limits all pools, and MachineConfigPool worker has not found out yet which of its hosts are away: see its conditions if it does not within a minute",
			func(c *clusterPools) { c.worker().Status.SlotsOpenTime = nil }),
		Entry("and is paused by Cluster API, so that it begins nothing", "", func(c *clusterPools) {
			c.worker().Status.SlotsOpenTime, c.worker().Annotations = nil, map[string]string{clusterv1.PausedAnnotation: ""}
		}),

		Entry("racks: a host of the same rack is away", "", racks, notReady("w1")),
		Entry("racks: a host of another rack is away", "spec.updates.cluster of MachineConfigPool worker limits all pools, and 4 of 4 hosts with one value of rack can be unavailable at a time, now w2"+remedy, racks, notReady("w2")),
		Entry("racks: another pool is about to give a slot in another rack", "spec.updates.cluster of MachineConfigPool worker limits all pools, and 4 of 4 hosts with one value of rack can be unavailable at a time, now w2"+remedy,
			racks, intent(poolv1.RoleWorker, "1", "w2", time.Second)),
	)

	It("lets the first ones of a pool begin that fit together", func() {
		c := newClusterPools(now)
		limit(intstr.FromInt32(1))(c)
		var beginning []rollout.Candidate
		for _, name := range []string{"i2", "i1"} {
			beginning = append(beginning, c.host(name).ForRollout(c.infra(), newRevision, nil, rollout.Hold{}))
		}
		fit, closed := rollout.CountCluster(c.infra(), c.pools, func(role string) []*rollout.Host { return c.hosts[role] }, nil, now).Fit(beginning)
		Expect(fit.UnsortedList()).To(ConsistOf("i1"))
		Expect(closed.Why).To(Equal(one + "those that begin" + remedy))
	})

	It("exists only in the worker pool", func() {
		c := newClusterPools(now)
		c.infra().Spec.Updates.Cluster.FailureDomainLabel = "rack"
		Expect(rollout.WorkerWithLimit(c.pools)).To(BeNil())
		racks(c)
		Expect(rollout.WorkerWithLimit(c.pools)).To(Equal(c.worker()))
		Expect(rollout.WorkerWithLimit(c.pools[1:])).To(BeNil())
	})
})
