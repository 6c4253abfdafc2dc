package foreignnode

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var edge = client.ObjectKey{Namespace: "metal", Name: "edge"}

func newPool(role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: role},
		Spec: poolv1.MachineConfigPoolSpec{ClusterName: edge.Name, PoolRole: role}}
}

func newNode(name string, roles ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}}}
	for _, role := range roles {
		node.Labels[poolv1.NodeRoleLabelPrefix+role] = ""
	}
	return node
}

// bootedByPoolboot sets the annotation of a pre-registered Node.
func bootedByPoolboot(n *corev1.Node) *corev1.Node {
	n.Annotations = map[string]string{poolv1.NodeConfigAnnotation: "metal/one"}
	return n
}

var _ = Describe("A Node that Poolboot did not boot", func() {
	var (
		workload client.Client
		cluster  *clusterv1.Cluster
	)
	reconcile := func(ctx context.Context, n *corev1.Node, pools ...*poolv1.MachineConfigPool) []eventsv1.Event {
		GinkgoHelper()
		scheme := controllertest.Scheme()
		management := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster)
		for _, p := range pools {
			management.WithObjects(p)
		}
		workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(n).Build()
		before := &corev1.Node{}
		Expect(workload.Get(ctx, client.ObjectKeyFromObject(n), before)).To(Succeed())
		r := &Reconciler{Client: management.Build(), ClusterCache: clustercache.NewFakeClusterCache(workload, edge, watchName)}
		for range 2 {
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: edge})
			Expect(err).NotTo(HaveOccurred())
		}
		after := &corev1.Node{}
		Expect(workload.Get(ctx, client.ObjectKeyFromObject(n), after)).To(Succeed())
		Expect(after).To(Equal(before), "the Node does not change")
		events := &eventsv1.EventList{}
		Expect(workload.List(ctx, events)).To(Succeed())
		return events.Items
	}

	BeforeEach(func() {
		cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name}}
		conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	})

	DescribeTable("gets one event about its labels",
		func(ctx SpecContext, n *corev1.Node, reason string, note ...string) {
			nodeConflicts := map[string]string{"cluster": edge.String(), "kind": "Node"}
			conflicts := metricSum("poolboot_pool_conflicts_total", nodeConflicts)
			events := reconcile(ctx, n, newPool("worker"), newPool("infra"), newPool("storage"))
			Expect(events).To(HaveLen(1))
			Expect(metricSum("poolboot_pool_conflicts_total", nodeConflicts) - conflicts).To(Equal(map[bool]float64{true: 1}[reason == poolv1.EventPoolConflict]))
			Expect(events[0].Reason).To(Equal(reason))
			Expect(events[0].Type).To(Equal(corev1.EventTypeWarning))
			Expect(events[0].Regarding).To(Equal(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}))
			for _, part := range note {
				Expect(events[0].Note).To(ContainSubstring(part))
			}
		},
		Entry("a control plane in a custom pool", newNode("cp-1", "control-plane", "infra"), poolv1.EventCustomPoolUnsupported, "infra", "remove their labels"),
		Entry("a master in two custom pools", newNode("cp-1", "master", "worker", "infra", "storage"), poolv1.EventCustomPoolUnsupported, "infra and storage"),
		Entry("two custom pools", newNode("upi-1", "infra", "storage"), poolv1.EventPoolConflict, "infra and storage", "remove the labels of all but one"),
	)

	DescribeTable("gets no event if its labels are valid",
		func(ctx SpecContext, n *corev1.Node) {
			Expect(reconcile(ctx, n, newPool("worker"), newPool("infra"), newPool("storage"))).To(BeEmpty())
		},
		Entry("a control plane", newNode("cp-1", "control-plane")),
		Entry("a worker", newNode("upi-1", "worker")),
		Entry("a Node in a custom pool", newNode("upi-1", "worker", "infra")),
		Entry("an unmanaged Node", newNode("upi-1", "gpu")),
		Entry("a Node that Poolboot booted: its PoolbootConfig reports the problem", bootedByPoolboot(newNode("server-1", "infra", "storage"))),
	)

	It("is ignored in a cluster without pools", func(ctx SpecContext) {
		Expect(reconcile(ctx, newNode("cp-1", "control-plane", "infra"))).To(BeEmpty())
	})

	It("is ignored while its Cluster is paused", func(ctx SpecContext) {
		cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(reconcile(ctx, newNode("cp-1", "control-plane", "infra"), newPool("infra"))).To(BeEmpty())
	})

	It("is checked when its labels change, and not at every heartbeat", func() {
		changed := labelsChanged()
		Expect(changed.Create(event.CreateEvent{Object: newNode("cp-1")})).To(BeTrue())
		Expect(changed.Create(event.CreateEvent{Object: bootedByPoolboot(newNode("server-1"))})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: newNode("cp-1"), ObjectNew: newNode("cp-1")})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: newNode("cp-1"), ObjectNew: newNode("cp-1", "infra")})).To(BeTrue())
		Expect(changed.Delete(event.DeleteEvent{Object: newNode("cp-1")})).To(BeFalse())
	})
})
