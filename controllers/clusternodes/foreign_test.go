package clusternodes

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	eventrecorder "k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

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
	reconcile := func(ctx context.Context, n *corev1.Node, roles ...string) []eventsv1.Event {
		GinkgoHelper()
		management := controllertest.NewClientBuilder(cluster)
		for _, role := range roles {
			management.WithObjects(controllertest.NewPool(edge, role))
		}
		workload = controllertest.NewClientBuilder(n).Build()
		before := &corev1.Node{}
		Expect(workload.Get(ctx, client.ObjectKeyFromObject(n), before)).To(Succeed())
		r := &Reconciler{Client: management.Build(), ClusterCache: controllertest.NewClusterCache(workload, edge), Recorder: eventrecorder.NewFakeRecorder(10)}
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
		cluster = controllertest.NewCluster(edge)
	})

	DescribeTable("gets one event about its labels",
		func(ctx SpecContext, n *corev1.Node, reason string, note ...string) {
			nodeConflicts := map[string]string{"cluster": edge.String(), "kind": "Node"}
			conflicts := scrape.Sum(metrics.Registry, "poolboot_pool_conflicts_total", nodeConflicts)
			events := reconcile(ctx, n, "worker", "infra", "storage")
			Expect(events).To(HaveLen(1))
			Expect(scrape.Sum(metrics.Registry, "poolboot_pool_conflicts_total", nodeConflicts) - conflicts).To(Equal(map[bool]float64{true: 1}[reason == poolv1.EventPoolConflict]))
			Expect(events[0].Reason).To(Equal(reason))
			Expect(events[0].Type).To(Equal(corev1.EventTypeWarning))
			Expect(events[0].Regarding).To(Equal(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}))
			for _, part := range note {
				Expect(events[0].Note).To(ContainSubstring(part))
			}
		},
		Entry("a control plane in a custom pool", controllertest.NewNode("cp-1", "control-plane", "infra"), poolv1.EventCustomPoolUnsupported, "infra", "remove their labels"),
		Entry("a master in two custom pools", controllertest.NewNode("cp-1", "master", "worker", "infra", "storage"), poolv1.EventCustomPoolUnsupported, "infra and storage"),
		Entry("two custom pools", controllertest.NewNode("upi-1", "infra", "storage"), poolv1.EventPoolConflict, "infra and storage", "remove the labels of all but one"),
	)

	DescribeTable("gets no event if its labels are valid",
		func(ctx SpecContext, n *corev1.Node) {
			Expect(reconcile(ctx, n, "worker", "infra", "storage")).To(BeEmpty())
		},
		Entry("a control plane", controllertest.NewNode("cp-1", "control-plane")),
		Entry("a worker", controllertest.NewNode("upi-1", "worker")),
		Entry("a Node in a custom pool", controllertest.NewNode("upi-1", "worker", "infra")),
		Entry("an unmanaged Node", controllertest.NewNode("upi-1", "gpu")),
		Entry("a Node that Poolboot booted: its PoolbootConfig reports the problem", bootedByPoolboot(controllertest.NewNode("server-1", "infra", "storage"))),
	)

	It("is ignored in a cluster without pools", func(ctx SpecContext) {
		Expect(reconcile(ctx, controllertest.NewNode("cp-1", "control-plane", "infra"))).To(BeEmpty())
	})

	It("is ignored while its Cluster is paused", func(ctx SpecContext) {
		cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(reconcile(ctx, controllertest.NewNode("cp-1", "control-plane", "infra"), "infra")).To(BeEmpty())
	})

	It("is checked when its labels change, and not at every heartbeat", func() {
		changed := labelsChanged()
		Expect(changed.Create(event.CreateEvent{Object: controllertest.NewNode("cp-1")})).To(BeTrue())
		Expect(changed.Create(event.CreateEvent{Object: bootedByPoolboot(controllertest.NewNode("server-1"))})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: controllertest.NewNode("cp-1"), ObjectNew: controllertest.NewNode("cp-1")})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: controllertest.NewNode("cp-1"), ObjectNew: controllertest.NewNode("cp-1", "infra")})).To(BeTrue())
		Expect(changed.Delete(event.DeleteEvent{Object: controllertest.NewNode("cp-1")})).To(BeFalse())
	})
})
