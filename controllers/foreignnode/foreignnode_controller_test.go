package foreignnode

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var edge = client.ObjectKey{Namespace: "metal", Name: "edge"}

func poolOf(role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: role},
		Spec: poolv1.MachineConfigPoolSpec{ClusterName: edge.Name, PoolRole: role}}
}

func node(name string, roles ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}}}
	for _, role := range roles {
		n.Labels[poolv1.NodeRoleLabelPrefix+role] = ""
	}
	return n
}

// bootedByPoolboot makes a Node one of controllers/node.
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
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, poolv1.AddToScheme} {
			Expect(add(scheme)).To(Succeed())
		}
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
		Expect(after).To(Equal(before), "nothing is written on it")
		events := &eventsv1.EventList{}
		Expect(workload.List(ctx, events)).To(Succeed())
		return events.Items
	}

	BeforeEach(func() {
		cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name}}
		conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	})

	DescribeTable("has what is wrong with its labels told once, at itself",
		func(ctx SpecContext, n *corev1.Node, reason string, note ...string) {
			ofNode := map[string]string{"cluster": edge.String(), "kind": "Node"}
			conflicts := counted("poolboot_pool_conflicts_total", ofNode)
			events := reconcile(ctx, n, poolOf("worker"), poolOf("infra"), poolOf("storage"))
			Expect(events).To(HaveLen(1))
			Expect(counted("poolboot_pool_conflicts_total", ofNode) - conflicts).To(Equal(map[bool]float64{true: 1}[reason == poolv1.EventPoolConflict]))
			Expect(events[0].Reason).To(Equal(reason))
			Expect(events[0].Type).To(Equal(corev1.EventTypeWarning))
			Expect(events[0].Regarding).To(Equal(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}))
			for _, part := range note {
				Expect(events[0].Note).To(ContainSubstring(part))
			}
		},
		Entry("a control plane in a custom pool", node("cp-1", "control-plane", "infra"), poolv1.EventCustomPoolUnsupported, "infra", "remove those labels"),
		Entry("a master in two", node("cp-1", "master", "worker", "infra", "storage"), poolv1.EventCustomPoolUnsupported, "infra and storage"),
		Entry("two custom pools", node("upi-1", "infra", "storage"), poolv1.EventPoolConflict, "infra and storage", "remove the labels of all but one"),
	)

	DescribeTable("has nothing told when nothing is wrong",
		func(ctx SpecContext, n *corev1.Node) {
			Expect(reconcile(ctx, n, poolOf("worker"), poolOf("infra"), poolOf("storage"))).To(BeEmpty())
		},
		Entry("a control plane", node("cp-1", "control-plane")),
		Entry("a worker", node("upi-1", "worker")),
		Entry("in a custom pool", node("upi-1", "worker", "infra")),
		Entry("unmanaged", node("upi-1", "gpu")),
		Entry("booted by Poolboot, whose PoolbootConfig says it", bootedByPoolboot(node("server-1", "infra", "storage"))),
	)

	It("is none of Poolboot's business in a cluster without pools", func(ctx SpecContext) {
		Expect(reconcile(ctx, node("cp-1", "control-plane", "infra"))).To(BeEmpty())
	})

	It("is left alone while its Cluster is paused", func(ctx SpecContext) {
		cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(reconcile(ctx, node("cp-1", "control-plane", "infra"), poolOf("infra"))).To(BeEmpty())
	})

	It("is looked at when its labels change, and not at every heartbeat", func() {
		changed := labelsChanged()
		Expect(changed.Create(event.CreateEvent{Object: node("cp-1")})).To(BeTrue())
		Expect(changed.Create(event.CreateEvent{Object: bootedByPoolboot(node("server-1"))})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: node("cp-1"), ObjectNew: node("cp-1")})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: node("cp-1"), ObjectNew: node("cp-1", "infra")})).To(BeTrue())
		Expect(changed.Delete(event.DeleteEvent{Object: node("cp-1")})).To(BeFalse())
	})
})
