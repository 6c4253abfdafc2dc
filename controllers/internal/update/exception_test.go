package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// except adds an exception for a host to the pool, which ends in some time.
func (w *world) except(ctx context.Context, i int, action poolv1.UpdateExceptionAction, left time.Duration) {
	GinkgoHelper()
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
		p.Spec.Updates.Exceptions = append(p.Spec.Updates.Exceptions, poolv1.UpdateException{
			Node: hostName(i), Action: action, Until: &metav1.Time{Time: time.Now().Add(w.passed + left)}, Reason: "waits for a disk",
		})
	})
}

// endWindow gives the pool a window that has just closed, for a day.
func (w *world) endWindow(ctx context.Context) {
	GinkgoHelper()
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
		p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: time.Now().UTC().Add(-time.Hour).Format("4 15 * * *"), DurationMinutes: 1}
	})
}

var _ = Describe("A host that its pool skips", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(3)
		w.adopt(ctx)
	})

	It("begins no update before that ends, holds nobody, says why, and is next afterwards", func(ctx SpecContext) {
		w.except(ctx, 0, poolv1.ExceptionSkip, 30*time.Minute)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(w.slots(ctx)).To(Equal([]string{"host-1"}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", And(
			HavePrefix("Node host-0 runs rendered-worker-1, and it is skipped until "), HaveSuffix(": waits for a disk (spec.updates.exceptions of the pool)")))))
		for _, reconcile := range []func() (time.Duration, error){
			func() (time.Duration, error) { r, err := w.reconcilePool(ctx); return r.RequeueAfter, err },
			func() (time.Duration, error) { r, err := w.reconcileHost(ctx, 0); return r.RequeueAfter, err },
		} {
			again, err := reconcile()
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(And(BeNumerically(">", 29*time.Minute), BeNumerically("<=", 30*time.Minute)), "nothing polls before it ends")
		}

		By("ending in the middle of the rollout")
		w.passed += 31 * time.Minute
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}), "under the limit of the pool")
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "it is the first one that waits")
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
	})

	It("completes the update that it has begun, also with a newer configuration", func(ctx SpecContext) {
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		w.reports(ctx, 0, agentv1.Draining, w.toldRevision(ctx, 0), "")
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-3")))
		w.reports(ctx, 0, agentv1.Applying, w.toldRevision(ctx, 0), "")

		By("ending in the middle of the update")
		w.passed += 2 * time.Hour
		w.settle(ctx)
		Expect(w.slots(ctx)).To(Equal([]string{"host-0"}))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("has the update that it began called back", func(ctx SpecContext) {
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, w.toldRevision(ctx, 0), "")
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.render(ctx, "rendered-worker-1")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.slots(ctx)).To(BeEmpty())
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
	})

	It("does not hold others after its update failed, and tries neither that nor the correction before", func(ctx SpecContext) {
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, w.toldRevision(ctx, 0), "its disk is full")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "the rollout has stopped")
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 1}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateDegradedReason), HaveField("Message", And(ContainSubstring("its disk is full"),
			ContainSubstring("It begins no other update now, because it is skipped until "), ContainSubstring(": waits for a disk")))))
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-2")))

		w.complete(ctx, 1)
		w.settle(ctx)
		w.complete(ctx, 2)
		w.passed += 2 * time.Hour
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-3")))
	})

	It("takes a place while its Node is not Ready", func(ctx SpecContext) {
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("begins as soon as somebody removes the exception", func(ctx SpecContext) {
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 1)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Exceptions = nil })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("does not restart, and is held by a pause after that", func(ctx SpecContext) {
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.force = "as a restart, which is another assignment"
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		w.reconciler.revisions.Clear()
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0).Message).To(And(ContainSubstring("it is skipped until "), ContainSubstring("After that, the pool is paused")))
		w.passed += 2 * time.Hour
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0).Message).NotTo(ContainSubstring("skipped"))
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = nil })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("is one of two, and does not begin if the clock of the manager jumps to and fro", func(ctx SpecContext) {
		w.except(ctx, 0, poolv1.ExceptionSkip, time.Hour)
		w.except(ctx, 1, poolv1.ExceptionSkip, 3*time.Hour)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
		w.complete(ctx, 2)
		w.settle(ctx)
		w.passed -= 48 * time.Hour
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		w.passed += 50 * time.Hour
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "the other one is still skipped")
		w.passed -= 2 * time.Hour
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty(), "it has completed what it began when the clock was ahead")
	})

	It("is updated in the pool to which it moves, where nothing skips it, and not in one that does", func(ctx SpecContext) {
		w.addPool(ctx, "infra", nil)
		w.except(ctx, 2, poolv1.ExceptionSkip, time.Hour)
		w.render(ctx, "rendered-worker-2")
		w.move(ctx, 2, "infra")
		w.settlePools(ctx, "infra")
		Expect(w.told(ctx)).To(Equal([]int{0, 2}))
		w.complete(ctx, 2)
		w.move(ctx, 2, poolv1.RoleWorker)
		w.settlePools(ctx, "infra")
		w.complete(ctx, 0)
		w.settlePools(ctx, "infra")
		w.complete(ctx, 1)
		w.settlePools(ctx, "infra")
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 2).Message).To(ContainSubstring("it is skipped until "))
	})
})

var _ = Describe("A later pool", func() {
	It("does not wait for a host that an earlier one skips", func(ctx SpecContext) {
		w := newWorld(3)
		w.addPool(ctx, "canary", func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Exceptions = []poolv1.UpdateException{{Node: hostName(2), Action: poolv1.ExceptionSkip, Until: &metav1.Time{Time: time.Now().Add(time.Hour)}, Reason: "waits for a disk"}}
		})
		w.move(ctx, 2, "canary")
		w.adopt(ctx)
		w.settlePools(ctx, "canary")
		w.complete(ctx, 2)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Cluster.Order = []poolv1.UpdateStep{{Pools: []string{"canary"}}}
		})
		pools := &poolv1.MachineConfigPoolList{}
		Expect(w.management.List(ctx, pools)).To(Succeed())
		p, err := pool.OfRole(pools.Items, "canary")
		Expect(err).NotTo(HaveOccurred())
		p.Status.InputsHash, err = pool.InputsID("canary", pools.Items, nil)
		Expect(err).NotTo(HaveOccurred())
		p.Status.Configuration.Name, p.Status.RenderedConfiguration, p.Status.ObservedGeneration = "rendered-canary-2", "rendered-canary-2", p.Generation
		for _, kind := range []string{poolv1.ReadyCondition, poolv1.UpdatingCondition} {
			meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: poolv1.HostsSkippedReason})
		}
		Expect(w.management.Status().Update(ctx, p)).To(Succeed())
		w.render(ctx, "rendered-worker-2")
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(Equal([]int{0}))

		By("ending, which the status does not say yet")
		w.complete(ctx, 0)
		w.passed += 2 * time.Hour
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(HaveSuffix("its host host-2 is to be updated, which its status does not say yet"))
	})
})

var _ = Describe("A host that ignores the maintenance window", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(3)
		w.adopt(ctx)
		w.endWindow(ctx)
	})

	It("is the only one that begins while the window is closed, and completes after the exception has ended", func(ctx SpecContext) {
		w.except(ctx, 2, poolv1.ExceptionIgnoreWindow, 30*time.Minute)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("the maintenance window of MachineConfigPool worker opens at "))
		w.reports(ctx, 2, agentv1.Draining, w.toldRevision(ctx, 2), "")
		w.passed += 31 * time.Minute
		w.settle(ctx)
		w.complete(ctx, 2)
		w.settle(ctx)
		Expect(w.node(ctx, 2).Spec.Unschedulable).To(BeFalse())
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("waits for the window again once the exception has ended, also if the clock jumps over that, and says so at that time", func(ctx SpecContext) {
		w.except(ctx, 2, poolv1.ExceptionIgnoreWindow, 30*time.Minute)
		result, err := w.reconcileHost(ctx, 2)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 29*time.Minute), BeNumerically("<=", 30*time.Minute)))
		w.passed += 5 * time.Hour
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 2).Message).To(ContainSubstring("the maintenance window of MachineConfigPool worker opens at "))
		w.passed -= 5 * time.Hour
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}), "the clock is back")
	})

	It("is held by everything else", func(ctx SpecContext) {
		w.except(ctx, 2, poolv1.ExceptionIgnoreWindow, time.Hour)
		for name, change := range map[string]func(p *poolv1.MachineConfigPool){
			"a pause":            func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) },
			"a missing approval": func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Approval = poolv1.ApprovalManual },
			"canaries": func(p *poolv1.MachineConfigPool) {
				p.Spec.Updates.Canary.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": ""}}
			},
			"the order of pools": func(p *poolv1.MachineConfigPool) {
				p.Spec.Updates.Cluster.Order = []poolv1.UpdateStep{{Pools: []string{"missing"}}}
			},
		} {
			w.render(ctx, "rendered-worker-2")
			var spec poolv1.MachineConfigPoolSpec
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
				p.Spec.DeepCopyInto(&spec)
				change(p)
			})
			w.settle(ctx)
			Expect(w.told(ctx)).To(BeEmpty(), name)
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec = spec })
		}
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty(), "the limit of the pool")
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
	})

	It("is the only one if the clock of the manager jumps over the window", func(ctx SpecContext) {
		w.except(ctx, 2, poolv1.ExceptionIgnoreWindow, 100*time.Hour)
		w.render(ctx, "rendered-worker-2")
		w.passed += 24 * time.Hour // the window was open for a minute an hour ago
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
		w.complete(ctx, 2)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		result, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", rollout.MaxWait)))
	})
})
