package e2e

import (
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const controlPlaneRole = "node-role.kubernetes.io/control-plane"

var _ = Describe("A Node that a user relabels", Ordered, func() {
	var (
		t      *tenant.Tenant
		config *bootstrapv1.PoolbootConfig
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 1)
		t.Create(ctx, t.Pool("edge"), t.Pool("storage"))
		t.Deploy(ctx, tenant.Deployment{Name: "edge", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "edge" }})
		config = t.Config(ctx, "edge")
		expectJoined(ctx, t, config)
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).Should(BeEmpty())
	}, NodeTimeout(5*time.Minute))

	DescribeTable("out of its pool is reported once, does not flap, and recovers when the labels are restored: the Node is",
		func(ctx SpecContext, reason string, change, restore map[string]*string, message string) {
			history, err := site.RecordNodes(ctx, lab.WorkloadClient)
			Expect(err).NotTo(HaveOccurred())
			before := t.Node(ctx, config)
			relabel(ctx, t.Node(ctx, config), change)
			Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(And(
				HavePrefix("False "+reason), ContainSubstring(before.Name), ContainSubstring(message)))
			Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False " + reason))
			Eventually(ctx, listEvents(ctx, config, reason)).Should(ConsistOf(ContainSubstring(message)))
			Consistently(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False " + reason))
			Expect(config.Status.PoolRole).To(Equal("edge"), "the recorded pool is unchanged")

			relabel(ctx, t.Node(ctx, config), restore)
			Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
			Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
			Consistently(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
			Expect(config.Status.PoolRole).To(Equal("edge"))
			Expect(config.Status.NodeRef.UID).To(BeEquivalentTo(before.UID))
			Expect(listEvents(ctx, config, reason)()).To(HaveLen(1))

			all := append([]site.NodeVersion{{Node: before}}, listVersions(ctx, history, before.Name)...)
			labels := slices.CompactFunc(slices.Clone(all), func(a, b site.NodeVersion) bool { return maps.Equal(a.Node.Labels, b.Node.Labels) })
			Expect(labels).To(HaveLen(3), "the only label changes are the user's two")
			Expect(labels[2].Node.Labels).To(Equal(before.Labels))
			for _, version := range all {
				Expect(version.Node.Annotations).To(HaveKeyWithValue(agentv1.DesiredConfigAnnotation, before.Annotations[agentv1.DesiredConfigAnnotation]), "the desired config did not change")
				Expect(version.Node.Spec.Taints).To(Equal(before.Spec.Taints))
			}
		},
		Entry("unmanaged without its pool's label", bootstrapv1.NodeOutsidePoolReason,
			map[string]*string{edgeRole: nil}, map[string]*string{edgeRole: ptr.To("")}, "set the labels of a pool on the Node"),
		Entry("in conflict with a second pool's label", bootstrapv1.PoolConflictReason,
			map[string]*string{storageRole: ptr.To("")}, map[string]*string{storageRole: nil}, "edge and storage"),
		Entry("unsupported with the control plane's label", bootstrapv1.ControlPlaneNodeReason,
			map[string]*string{controlPlaneRole: ptr.To("")}, map[string]*string{controlPlaneRole: nil}, "remove the control-plane label"),
	)
})
