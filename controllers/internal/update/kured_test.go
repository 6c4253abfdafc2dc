package update

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Another program, such as kured, cordons a Node, evicts its Pods, reboots its host, and uncordons the Node unless it
// was cordoned before. It can also add a taint and annotations.
var _ = Describe("Beside another program that reboots hosts", func() {
	var w *world
	second := revisionOf(0, "rendered-worker-2")
	cordons := func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "weave.works/kured-node-reboot", Effect: corev1.TaintEffectPreferNoSchedule})
		node.Annotations["weave.works/kured-reboot-in-progress"] = "2026-12-01T00:00:00Z"
	}
	uncordons := func(node *corev1.Node) {
		node.Spec.Unschedulable, node.Spec.Taints = false, nil
		delete(node.Annotations, "weave.works/kured-reboot-in-progress")
	}
	reboots := func(node *corev1.Node) { // until the agent starts, it reports what it reported before
		node.Status.NodeInfo.BootID = "another"
		setReady(node, false)
	}
	keepsItsWork := func(node *corev1.Node) {
		GinkgoHelper()
		Expect(node.Spec.Unschedulable).To(BeTrue())
		Expect(node.Spec.Taints).To(ContainElement(HaveField("Key", "weave.works/kured-node-reboot")))
		Expect(node.Annotations).To(HaveKey("weave.works/kured-reboot-in-progress"))
	}

	It("a host begins no update while its Node is cordoned, and then does", func(ctx SpecContext) {
		w = newWorld(1)
		w.adopt(ctx)
		w.changeNode(ctx, 0, cordons)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.config(ctx, 0).Status.Update.UnavailableReason).To(Equal(bootstrapv1.UnavailableCordoned))
		keepsItsWork(w.node(ctx, 0))
		w.changeNode(ctx, 0, reboots)
		w.settle(ctx)
		keepsItsWork(w.node(ctx, 0))
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			setReady(node, true)
			uncordons(node)
		})
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("a Node that it cordons just before the drain stays cordoned after the update, with its taint", func(ctx SpecContext) {
		w = newDrainingWorld(ctx)
		w.changeNode(ctx, 0, cordons)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(And(HaveKeyWithValue(agentv1.DrainedAnnotation, second), Not(HaveKey(agentv1.CordonedAnnotation))))
		w.complete(ctx, 0)
		w.settle(ctx)
		keepsItsWork(w.node(ctx, 0))
		Expect(w.told(ctx)).To(BeEmpty(), "the host holds its place until it is uncordoned")
		w.changeNode(ctx, 0, uncordons)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("a host that it reboots during the drain is drained and updated all the same, and uncordoned once", func(ctx SpecContext) {
		w = newWorld(2)
		Expect(w.workload.Create(ctx, newPod(0))).To(Succeed())
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, second, "")
		w.evict = func(*corev1.Pod) error { return errPDB }
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		w.changeNode(ctx, 0, reboots)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		w.evict = nil
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		w.settle(ctx)
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(newPod(0)), &corev1.Pod{})).To(Satisfy(apierrors.IsNotFound))
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DrainedAnnotation, second))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
	})

	DescribeTable("a host that it reboots in its update keeps its place, and no other host begins", func(ctx SpecContext, state agentv1.State) {
		w = newDrainingWorld(ctx)
		w.settle(ctx)
		w.reports(ctx, 0, state, second, "")
		w.changeNode(ctx, 0, reboots)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.told(ctx)).To(Equal([]int{1}))
	},
		Entry("while it is changed", agentv1.Applying),
		Entry("while it reboots", agentv1.Rebooting),
		Entry("while it is verified", agentv1.Verifying),
	)

	It("a Node that it uncordons during the drain is cordoned again", func(ctx SpecContext) {
		w = newDrainingWorld(ctx)
		Expect(w.workload.Create(ctx, newPod(0))).To(Succeed())
		w.evict = func(*corev1.Pod) error { return errPDB }
		w.settle(ctx)
		w.changeNode(ctx, 0, uncordons)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.CordonedAnnotation))
	})

	It("a Node that it uncordons after the drain stays so: Pods that come are ended by the reboot, and the update ends", func(ctx SpecContext) {
		w = newDrainingWorld(ctx)
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Applying, second, "")
		w.changeNode(ctx, 0, uncordons)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(And(HaveField("Spec.Unschedulable", BeFalse()), HaveField("Annotations", Not(HaveKey(agentv1.CordonedAnnotation)))))
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("a Node that it cordons after the update has cordoned it is uncordoned with the end of the update: it is not known who wants what", func(ctx SpecContext) {
		w = newDrainingWorld(ctx)
		w.settle(ctx)
		w.changeNode(ctx, 0, cordons) // nothing changes for it: the Node is cordoned
		w.complete(ctx, 0)
		w.settle(ctx)
		node := w.node(ctx, 0)
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(node.Spec.Taints).To(ConsistOf(HaveField("Key", "weave.works/kured-node-reboot")), "its taint is its own")
	})
})
