package update

import (
	"time"

	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// addPool creates another pool with the rendered config rendered-<role>-1.
func (w *world) addPool(ctx context.Context, role string, change func(*poolv1.MachineConfigPool)) {
	GinkgoHelper()
	p := controllertest.NewPool(clusterKey, role)
	p.Status.Configuration.Name = "rendered-" + role + "-1"
	p.Status.SlotsOpenTime = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	if change != nil {
		change(p)
	}
	Expect(w.management.Create(ctx, p)).To(Succeed())
}

// relabel gives a Node the role labels of these pools, instead of those that it has.
func (w *world) relabel(ctx context.Context, i int, roles ...string) {
	GinkgoHelper()
	w.changeNode(ctx, i, func(node *corev1.Node) {
		node.Labels = map[string]string{}
		for _, role := range roles {
			node.Labels[poolv1.NodeRoleLabelPrefix+role] = ""
		}
	})
}

// record records the pool of a host, as the host controller does after the labels have changed.
func (w *world) record(ctx context.Context, i int, role string) {
	GinkgoHelper()
	config := w.config(ctx, i)
	config.Status.PoolRole = role
	Expect(w.management.Status().Update(ctx, config)).To(Succeed())
}

// move relabels a Node, and records its new pool.
func (w *world) move(ctx context.Context, i int, role string) {
	GinkgoHelper()
	w.relabel(ctx, i, role)
	w.record(ctx, i, role)
}

// settlePools reconciles these pools and all hosts until nothing more is written.
func (w *world) settlePools(ctx context.Context, roles ...string) {
	GinkgoHelper()
	for range 50 {
		before := w.Writes
		for _, role := range roles {
			key := client.ObjectKey{Namespace: clusterKey.Namespace, Name: role}
			w.Settle(func() (ctrl.Result, error) { return w.reconciler.reconcilePool(ctx, key) })
		}
		w.settle(ctx)
		if w.Writes == before {
			return
		}
	}
	Fail("the reconcilers never settle")
}

func (w *world) toldRevision(ctx context.Context, i int) string {
	GinkgoHelper()
	return w.node(ctx, i).Annotations[agentv1.DesiredAnnotation]
}

var _ = Describe("A host that changes its pool", func() {
	// newScene returns three workers that run rendered-worker-1, and an empty pool infra.
	newScene := func(ctx context.Context, change func(*poolv1.MachineConfigPool)) *world {
		w := newWorld(3)
		w.addPool(ctx, "infra", change)
		w.adopt(ctx)
		return w
	}

	It("changes to the configuration of its new pool, under the limit of that pool, while the pool that it leaves goes on", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.move(ctx, 0, "infra")
		w.move(ctx, 1, "infra")
		w.render(ctx, "rendered-worker-2")
		w.settlePools(ctx, "infra")
		Expect(w.told(ctx)).To(Equal([]int{0, 2}))
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-infra-1")))
		Expect(w.toldRevision(ctx, 2)).To(Equal(revisionOf(2, "rendered-worker-2")))
		Expect(w.updated(ctx, 1).Message).To(ContainSubstring("waits for its turn before its update to rendered-infra-1: see kubectl poolboot rollout plan infra"))

		w.complete(ctx, 0)
		w.settlePools(ctx, "infra")
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-infra-1"))
		Expect(w.toldRevision(ctx, 1)).To(Equal(revisionOf(1, "rendered-infra-1")))
	})

	It("begins no update to its earlier pool between the change of its labels and the record", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.relabel(ctx, 0, "infra")
		w.render(ctx, "rendered-worker-2")
		w.settlePools(ctx, "infra")
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.complete(ctx, 1)
		w.settlePools(ctx, "infra")
		Expect(w.told(ctx)).To(Equal([]int{2}))
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-1")))
	})

	DescribeTable("gets nothing while its labels", func(ctx SpecContext, roles ...string) {
		w := newScene(ctx, nil)
		w.addPool(ctx, "storage", nil)
		w.relabel(ctx, 0, roles...)
		w.render(ctx, "rendered-worker-2")
		w.settlePools(ctx, "infra", "storage")
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.UpdateWaitingReason),
			HaveField("Message", ContainSubstring("follows no pool until its labels name exactly one"))))

		w.relabel(ctx, 0, poolv1.RoleWorker)
		w.settlePools(ctx, "infra", "storage")
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.complete(ctx, 1)
		w.settlePools(ctx, "infra", "storage")
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-2")))
	},
		Entry("name two custom pools", "infra", "storage"),
		Entry("name no pool", "gpu"),
	)

	It("is in an update: it counts in its new pool, and gets the configuration of that pool at once", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.move(ctx, 2, "infra")
		w.settlePools(ctx, "infra")
		w.complete(ctx, 2)
		w.settlePools(ctx, "infra")
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))

		w.move(ctx, 0, "infra")
		w.settlePools(ctx, "infra")
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-infra-1")))
		infra := &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: "infra"}, infra)).To(Succeed())
		infra.Status.Configuration.Name = "rendered-infra-2"
		Expect(w.management.Status().Update(ctx, infra)).To(Succeed())
		w.settlePools(ctx, "infra")
		Expect(w.toldRevision(ctx, 2)).To(Equal(revisionOf(2, "rendered-infra-1")), "another host of infra waits for the one that was moved")
	})

	It("is labeled back before its update has begun: nothing happens", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.relabel(ctx, 0, "infra")
		w.settlePools(ctx, "infra")
		w.relabel(ctx, 0, poolv1.RoleWorker)
		w.settlePools(ctx, "infra")
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
	})

	It("is labeled back in the middle: it gets its earlier configuration back at once", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.move(ctx, 0, "infra")
		w.settlePools(ctx, "infra")
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-infra-1"), "")
		w.settlePools(ctx, "infra")
		w.move(ctx, 0, poolv1.RoleWorker)
		w.settlePools(ctx, "infra")
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-1")))
		w.complete(ctx, 0)
		w.settlePools(ctx, "infra")
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-1"))
	})

	It("waits in a paused pool, after it has completed what it began", func(ctx SpecContext) {
		w := newScene(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		w.move(ctx, 0, "infra")
		w.settlePools(ctx, "infra")
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-2")))
		w.complete(ctx, 0)
		w.settlePools(ctx, "infra")
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-2")))
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("kubectl poolboot rollout resume infra"))

		infra := &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: "infra"}, infra)).To(Succeed())
		infra.Spec.Paused = nil
		Expect(w.management.Update(ctx, infra)).To(Succeed())
		w.settlePools(ctx, "infra")
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-infra-1")))
	})

	It("changes to the pool that takes it when its own pool is deleted, also in the middle of an update", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.relabel(ctx, 0, "infra", poolv1.RoleWorker)
		w.record(ctx, 0, "infra")
		w.settlePools(ctx, "infra")
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-infra-1"), "")
		w.settlePools(ctx, "infra")
		Expect(w.management.Delete(ctx, controllertest.NewPool(clusterKey, "infra"))).To(Succeed())
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-infra-1")))
		w.record(ctx, 0, poolv1.RoleWorker)
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-1")))
	})

	for n := 1; n <= 4; n++ {
		It("gets the configuration of its new pool if the manager crashes in between", func(ctx SpecContext) {
			w := newScene(ctx, nil)
			w.move(ctx, 0, "infra")
			w.CrashAt = w.Writes + n
			w.settlePools(ctx, "infra")
			Expect(w.told(ctx)).To(Equal([]int{0}))
			Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-infra-1")))
		})
	}

	It("was recorded by its earlier pool and not told: its new pool records and tells it something else", func(ctx SpecContext) {
		w := newScene(ctx, nil)
		w.render(ctx, "rendered-worker-2")
		w.CrashesAt = func(o client.Object) bool { _, isNode := o.(*corev1.Node); return isNode }
		Expect(w.roll(ctx)).To(MatchError(controllertest.ErrCrash))
		w.CrashesAt, w.Crashed = nil, false
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
		w.move(ctx, 0, "infra")
		w.settlePools(ctx, "infra")
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-infra-1")))
	})
})
