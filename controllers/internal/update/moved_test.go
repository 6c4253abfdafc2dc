package update

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// moveCluster does what clusterctl move does: the objects are created again in another management cluster, with other
// UIDs and without their status. The assignments are not moved. The pool hands out this rendered config afterwards.
func (w *world) moveCluster(ctx context.Context, rendered string) {
	GinkgoHelper()
	b := w.backUp(ctx)
	Expect(w.management.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace("poolboot-system"))).To(Succeed())
	for i := range b.configs.Items {
		config := &b.configs.Items[i]
		Expect(w.management.Delete(ctx, config.DeepCopy())).To(Succeed())
		config.UID, config.ResourceVersion, config.Status = types.UID("moved-"+config.Name), "", bootstrapv1.PoolbootConfigStatus{}
		config.CreationTimestamp = metav1.Now()
		Expect(w.management.Create(ctx, config)).To(Succeed())
	}
	for i := range b.machines.Items {
		machine := &b.machines.Items[i]
		machine.Status = clusterv1.MachineStatus{}
		Expect(w.management.Update(ctx, machine)).To(Succeed())
	}
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
		p.Status = poolv1.MachineConfigPoolStatus{}
		p.Status.Configuration.Name = rendered
	})
	w.reconciler = w.newManager(w.Write)
}

// recordMoved records the pool and the Node of a host, as the host controller does after a move.
func (w *world) recordMoved(ctx context.Context, i int) {
	GinkgoHelper()
	config, node := w.config(ctx, i), w.node(ctx, i)
	config.Status.PoolRole = poolv1.RoleWorker
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: node.Name, UID: string(node.UID)}
	config.Status.Boot.ServedConfiguration.Name = "rendered-worker-1"
	Expect(w.management.Status().Update(ctx, config)).To(Succeed())
}

var _ = Describe("After clusterctl move in the middle of an update", func() {
	paused := HaveField("Annotations", HaveKeyWithValue(clusterv1.MachineSkipRemediationAnnotation, "poolboot"))

	// updating returns a world in which host 0 has reached a stage of its update. Of a host that was only told, the
	// state is "".
	updating := func(ctx context.Context, state agentv1.State) *world {
		GinkgoHelper()
		w := newWorld(3)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		states := []agentv1.State{agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying, agentv1.Degraded}
		for _, s := range states[:slices.Index(states, state)+1] {
			w.reports(ctx, 0, s, revisionOf(0, "rendered-worker-2"), "")
			w.settle(ctx)
		}
		return w
	}
	DescribeTable("no other host begins its update before the place is free of a host that",
		func(ctx SpecContext, state agentv1.State) {
			w := updating(ctx, state)
			wasPaused, _ := paused.Match(w.machine(ctx, 0))
			w.moveCluster(ctx, "rendered-worker-2")
			for _, i := range []int{2, 1, 0} { // the host that is in its update is recorded last
				w.settle(ctx)
				Expect(w.told(ctx)).To(Equal([]int{0}))
				if wasPaused {
					Expect(w.machine(ctx, 0)).To(paused, "its health checks stay paused")
				}
				w.recordMoved(ctx, i)
			}
			w.settle(ctx)
			Expect(w.told(ctx)).To(Equal([]int{0}))
			Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
			stored, err := w.reconciler.storedOf(ctx, w.config(ctx, 0))
			Expect(err).NotTo(HaveOccurred())
			Expect(stored).NotTo(BeNil(), "the host can download it")
			Expect(stored.revision).To(Equal(revisionOf(0, "rendered-worker-2")))
			if state == agentv1.Draining {
				Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DrainedAnnotation, revisionOf(0, "rendered-worker-2")))
			}

			w.complete(ctx, 0)
			w.settle(ctx)
			Expect(w.told(ctx)).To(BeEmpty(), "the slots have just been built")
			w.passed += rollout.SlotsPause
			w.settle(ctx)
			Expect(w.told(ctx)).To(Equal([]int{1}))
			Expect(w.machine(ctx, 0)).NotTo(paused)
			Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		},
		Entry("was told what to run", agentv1.State("")),
		Entry("is drained", agentv1.Draining),
		Entry("is being changed", agentv1.Applying),
		Entry("reboots", agentv1.Rebooting),
		Entry("is verified", agentv1.Verifying),
		Entry("has failed", agentv1.Degraded),
	)

	It("a host of which no Node is found takes a place, because it can be rebooting", func(ctx SpecContext) {
		w := updating(ctx, agentv1.Rebooting)
		w.moveCluster(ctx, "rendered-worker-2")
		w.changeNode(ctx, 0, func(node *corev1.Node) { delete(node.Annotations, poolv1.NodeConfigAnnotation) })
		w.recordMoved(ctx, 1)
		w.recordMoved(ctx, 2)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("a host whose Node another host claims takes a place", func(ctx SpecContext) {
		w := updating(ctx, agentv1.Rebooting)
		w.moveCluster(ctx, "rendered-worker-2")
		claimed := w.node(ctx, 0).Annotations[poolv1.NodeConfigAnnotation]
		w.recordMoved(ctx, 1)
		w.recordMoved(ctx, 2)
		w.changeNode(ctx, 2, func(node *corev1.Node) { node.Annotations[poolv1.NodeConfigAnnotation] = claimed })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("health checks of a host that is never recorded again count after a while", func(ctx SpecContext) {
		w := updating(ctx, agentv1.Rebooting)
		w.moveCluster(ctx, "rendered-worker-2")
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", BeNumerically("~", rollout.StagePatience, time.Minute)))
		Expect(w.machine(ctx, 0)).To(paused)
		w.reconciler.clock = func() time.Time { return time.Now().Add(2 * rollout.StagePatience) }
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", BeZero()))
		Expect(w.machine(ctx, 0)).NotTo(paused)
	})

	It("a host goes on although the pool is paused, and the hosts that have what the pool hands out are recorded", func(ctx SpecContext) {
		w := updating(ctx, "")
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		w.moveCluster(ctx, "rendered-worker-2")
		for i := range 3 {
			w.recordMoved(ctx, i)
		}
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))

		w.moveCluster(ctx, "rendered-worker-2")
		w.recordMoved(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
		Expect(w.told(ctx)).To(BeEmpty())
	})
})
