package rollout_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("The order of a cluster's pools", func() {
	var (
		pools   []poolv1.MachineConfigPool
		configs []poolv1.MachineConfig
		now     = timeOf("2026-11-21T12:00:00Z")
	)
	of := func(role string) *poolv1.MachineConfigPool {
		GinkgoHelper()
		p, err := pool.OfRole(pools, role)
		Expect(err).NotTo(HaveOccurred())
		return p
	}
	// render lets a pool render what is there now, as its controller does.
	render := func(role string) {
		GinkgoHelper()
		p := of(role)
		inputs, err := pool.InputsID(role, pools, configs)
		Expect(err).NotTo(HaveOccurred())
		p.Status.InputsHash, p.Status.ObservedGeneration = inputs, p.Generation
		p.Status.Configuration.Name, p.Status.RenderedConfiguration = "rendered-"+role, "rendered-"+role
		p.Status.Conditions = []metav1.Condition{{Type: poolv1.ReadyCondition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	}
	// closed returns why hosts of a pool begin no update, or "".
	closed := func(role string) string {
		for _, e := range rollout.EarlierPools(of(role), pools) {
			if closed := e.ClosedUntilReady(pools, configs, now); closed != nil {
				Expect(closed.Reason).To(Equal(poolv1.EarlierPoolsPendingReason))
				return closed.Why
			}
		}
		return ""
	}
	order := func(steps ...poolv1.UpdateStep) { of(poolv1.RoleWorker).Spec.Updates.Cluster.Order = steps }

	BeforeEach(func() {
		pools, configs = nil, []poolv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Generation: 1, Labels: map[string]string{"role": "worker"}}}}
		for _, role := range []string{"worker", "canary", "storage", "gpu", "control-plane"} {
			p := poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: role, Generation: 1}}
			p.Spec = poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: role, MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}
			pools = append(pools, p)
		}
		order(poolv1.UpdateStep{Pools: []string{"canary"}, SoakSeconds: ptr.To[int32](1800)}, poolv1.UpdateStep{Pools: []string{"worker", "storage"}})
		for i := range pools {
			render(pools[i].Spec.PoolRole)
		}
	})

	const first = "the pool canary comes first (spec.updates.cluster.order[0] of MachineConfigPool worker), and "

	DescribeTable("has these pools wait for", func(role string, roles ...string) {
		waitsFor := []string{}
		for _, e := range rollout.EarlierPools(of(role), pools) {
			waitsFor = append(waitsFor, e.Role)
		}
		Expect(waitsFor).To(Equal(append([]string{}, roles...)))
	},
		Entry("none: the first step", "canary"),
		Entry("the steps before its own, not the pools of its own", "worker", "canary"),
		Entry("all steps: in none", "gpu", "canary", "worker", "storage"),
		Entry("all steps: the control plane in none", "control-plane", "canary", "worker", "storage"),
	)

	It("lets all pools begin that are not in it without steps, or without the worker pool", func() {
		order()
		Expect(rollout.EarlierPools(of("gpu"), pools)).To(BeEmpty())
		Expect(rollout.EarlierPools(of("gpu"), pools[1:])).To(BeEmpty())
	})

	It("lets a pool begin once the earlier ones are ready for long enough", func() {
		Expect(closed("worker")).To(BeEmpty())
		Expect(closed("gpu")).To(BeEmpty())
	})

	It("lets later pools begin although one is not ready because of hosts that it skips, once it is done but for these for long enough", func() {
		set := func(updatingSince time.Duration) {
			of("canary").Status.Conditions = []metav1.Condition{
				{Type: poolv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: poolv1.HostsSkippedReason, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
				{Type: poolv1.UpdatingCondition, Status: metav1.ConditionFalse, Reason: poolv1.HostsSkippedReason, LastTransitionTime: metav1.NewTime(now.Add(-updatingSince))},
			}
		}
		set(time.Minute)
		Expect(closed("worker")).To(Equal(first + "MachineConfigPool canary must stay ready until 2026-11-21T12:29:00Z (soakSeconds): wait, or set fewer seconds"))
		set(30 * time.Minute)
		Expect(closed("worker")).To(BeEmpty())
		of("canary").Status.RenderedConfiguration = "rendered-other"
		Expect(closed("worker")).NotTo(BeEmpty())
	})

	DescribeTable("holds the later pools while a pool", func(change func(p *poolv1.MachineConfigPool), why string) {
		change(of("canary"))
		Expect(rollout.EarlierPools(&poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{PoolRole: "canary"}}, pools)).To(BeEmpty())
		for _, later := range []string{"worker", "storage", "gpu", "control-plane"} {
			Expect(closed(later)).To(Equal(first + why))
		}
	},
		Entry("is being updated", func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = metav1.ConditionFalse, poolv1.HostsUpdatingReason
		}, "MachineConfigPool canary is not ready (HostsUpdating): see kubectl poolboot rollout status canary -n edge"),
		Entry("never becomes ready", func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = metav1.ConditionFalse, poolv1.RolloutStoppedReason
		}, "MachineConfigPool canary is not ready (RolloutStopped): see kubectl poolboot rollout status canary -n edge"),
		Entry("is ready for too short", func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-1799 * time.Second))
		}, "MachineConfigPool canary must stay ready until 2026-11-21T12:00:01Z (soakSeconds): wait, or set fewer seconds"),
		Entry("is ready since a time to come, because a clock was set back", func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(time.Hour))
		}, "MachineConfigPool canary must stay ready until 2026-11-21T13:30:00Z (soakSeconds): wait, or set fewer seconds"),
		Entry("holds back what it renders", func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = "rendered-earlier" },
			"MachineConfigPool canary holds back what it renders: run kubectl poolboot rollout resume canary -n edge"),
		Entry("has a status from before its last change", func(p *poolv1.MachineConfigPool) { p.Generation++ },
			"MachineConfigPool canary has not rendered its present MachineConfigs: see its condition RenderDegraded"),
		Entry("has no status, as after clusterctl move", func(p *poolv1.MachineConfigPool) { p.Status = poolv1.MachineConfigPoolStatus{} },
			"MachineConfigPool canary has not rendered its present MachineConfigs: see its condition RenderDegraded"),
		Entry("does not exist", func(p *poolv1.MachineConfigPool) { p.Spec.PoolRole = "another" },
			`the Cluster has no MachineConfigPool of role "canary": create it, or correct the role, or take it out of the order`),
	)

	It("holds the later pools while a pool is pinned, but not one that is pinned, too: both return", func() {
		canary := of("canary")
		canary.Spec.ConfigurationName, canary.Status.Configuration.Name = "rendered-earlier", "rendered-earlier"
		canary.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
		canary.Status.Conditions = append(canary.Status.Conditions, metav1.Condition{Type: poolv1.PinnedCondition, Status: metav1.ConditionTrue, ObservedGeneration: canary.Generation,
			Message: "the pool hands out rendered-earlier"})
		Expect(closed("worker")).To(Equal(first + "MachineConfigPool canary does not hand out what it renders: the pool hands out rendered-earlier"))

		of("worker").Spec.ConfigurationName = "rendered-earlier"
		Expect(closed("worker")).To(BeEmpty(), "it has nothing that the canary had to prove, so soakSeconds does not count either")
		canary.Status.Conditions[0].Status = metav1.ConditionFalse
		Expect(closed("worker")).To(HavePrefix(first + "MachineConfigPool canary is not ready"))
		canary.Status.Conditions[0].Status, canary.Spec.Paused, canary.Status.Configuration.Name = metav1.ConditionTrue, new(true), "rendered-other"
		Expect(closed("worker")).To(HavePrefix(first + "MachineConfigPool canary holds back what it renders"))
	})

	It("holds the later pools if the pool of a step exists twice", func() {
		pools = append(pools, *of("canary"))
		pools[len(pools)-1].Name = "canary-2"
		Expect(closed("gpu")).To(Equal(first + `the MachineConfigPools canary and canary-2 all have the role "canary": delete all but one, or take it out of the order`))
	})

	It("holds the later pools from the moment at which a MachineConfig changes, before any pool has rendered it", func() {
		configs[0].Generation++
		Expect(closed("worker")).To(Equal(first + "MachineConfigPool canary has not rendered its present MachineConfigs: see its condition RenderDegraded"))
		render("canary")
		Expect(closed("worker")).To(BeEmpty())
		Expect(closed("gpu")).To(HavePrefix("the pool worker comes first (spec.updates.cluster.order[1] of MachineConfigPool worker), and MachineConfigPool worker has not rendered"))
	})
})
