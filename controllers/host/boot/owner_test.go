package boot

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A host without a Machine", func() {
	// enrolled returns the setting of a host that enrolled.
	enrolled := func() *setting {
		s := newSetting()
		s.config.OwnerReferences, s.config.Status.DataSecretName = nil, ""
		s.config.Spec.PoolRole, s.config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		return s
	}

	It("gets a Node in its pool, one join credential and an overlay, like the host of a Machine", func(ctx SpecContext) {
		w := enrolled().world()
		Expect(w.sendRequest(ctx)).Error().NotTo(HaveOccurred())
		n, config := w.node(ctx), w.config(ctx)
		Expect(n.Name).To(Equal("edge-7"))
		Expect(n.Labels).To(And(HaveKeyWithValue(infraLabel, ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra")))
		Expect(n.Annotations).To(HaveKeyWithValue(poolv1.NodeConfigAnnotation, namespace+"/"+machineName))
		Expect(conditions.IsTrue(config, bootstrapv1.BootPreparedCondition)).To(BeTrue())
		Expect(config.Status.NodeRef.UID).To(Equal(string(n.UID)))
		Expect(w.credentials(ctx)).To(HaveLen(1))
		Expect(w.overlays(ctx)).To(HaveLen(1))
	})

	It("has nothing on its Node that only Cluster API removes or only Metal3 knows", func(ctx SpecContext) {
		w := enrolled().world()
		Expect(w.sendRequest(ctx)).Error().NotTo(HaveOccurred())
		n := w.node(ctx)
		Expect(n.Spec.Taints).To(ConsistOf(HaveField("Key", poolv1.NodeUnassignedTaint)))
		Expect(n.Spec.Taints).NotTo(ContainElement(HaveField("Key", clusterv1.NodeUninitializedTaint.Key)))
		Expect(n.Spec.ProviderID).To(BeEmpty())
		Expect(n.Labels).NotTo(HaveKey(poolv1.NodeMetal3UUIDLabel))
		Expect(w.config(ctx).Status.HostRef).To(BeZero())
	})

	It("never gets the Node of an earlier host with the same name", func(ctx SpecContext) {
		w := enrolled().world()
		left := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Annotations: map[string]string{poolv1.NodeConfigAnnotation: namespace + "/" + machineName}}}
		left.Status.NodeInfo.KubeletVersion = "v1.36.3"
		Expect(w.workload.Create(ctx, left)).To(Succeed())
		Expect(w.sendRequest(ctx)).Error().To(MatchError(ContainSubstring("delete the Node")))
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(Equal(bootstrapv1.NodeNameTakenReason))
		Expect(w.overlays(ctx)).To(BeEmpty())
	})

	// annotated returns the setting of a BareMetalHost with the annotation for a pool.
	annotated := func() *setting {
		s := newSetting()
		s.config.OwnerReferences = nil
		s.config.Spec.PoolRole, s.config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: hostName, BareMetalHostName: hostName}
		s.host.Spec.ConsumerRef = nil
		return s
	}

	It("has the UID of its BareMetalHost and derived labels on its Node", func(ctx SpecContext) {
		s := annotated()
		s.host.Labels = map[string]string{"rack": "r7"}
		s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/rack", ValueExpression: "host.labels.rack"}}
		w := s.world()
		Expect(w.sendRequest(ctx)).Error().NotTo(HaveOccurred())
		n := w.node(ctx)
		Expect(n.Name).To(Equal(hostName))
		Expect(n.Labels).To(And(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"), HaveKeyWithValue(infraLabel, ""),
			HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-of-the-host"), HaveKeyWithValue("example.com/rack", "r7")))
		Expect(n.Spec.ProviderID).To(BeEmpty())
		Expect(n.Spec.Taints).NotTo(ContainElement(HaveField("Key", clusterv1.NodeUninitializedTaint.Key)))
		Expect(w.config(ctx).Status.HostRef).To(HaveField("UID", "uid-of-the-host"))
		Expect(w.overlays(ctx)).To(HaveLen(1))
	})

	It("gets nothing once its BareMetalHost belongs to a Machine or is wiped", func(ctx SpecContext) {
		s := annotated()
		s.host.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning
		w := s.world()
		Expect(w.sendRequest(ctx)).Error().NotTo(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.HostNotReadyReason, "deprovisioning")
		s = annotated()
		s.host.Spec.ConsumerRef = newSetting().host.Spec.ConsumerRef
		w = s.world()
		Expect(w.sendRequest(ctx)).Error().NotTo(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.HostNotReadyReason, "spec.consumerRef")
	})

	It("is reported if its image gets no user data", func(ctx SpecContext) {
		s := annotated()
		s.host.Spec.Image = &bmov1alpha1.Image{DiskFormat: new("live-iso")}
		w := s.world()
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(conditions.GetMessage(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(HaveSuffix("give it a disk image"))
	})
})
