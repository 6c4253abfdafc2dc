package bootstrapdata

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// withoutMachine turns a config into that of a host without a Machine.
func withoutMachine(config *bootstrapv1.PoolbootConfig) {
	config.OwnerReferences = nil
	config.Spec.PoolRole, config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "edge-7", BareMetalHostName: "edge-7"}
}

// enrolledHost turns a config into that of a host that enrolled.
func enrolledHost(config *bootstrapv1.PoolbootConfig) {
	withoutMachine(config)
	config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
	config.Annotations = map[string]string{bootstrapv1.TokenHashAnnotation: "of the token"}
}

var _ = Describe("A host without a Machine", func() {
	It("has a pool, and a data Secret that points to the config server", func(ctx SpecContext) {
		s := newSite(newCluster(), newConfig(withoutMachine), newPool("worker"), newPool("infra"))
		config := s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(pointerIn(s.secret(ctx)).URL).To(Equal(serverURL + "/config/infra/" + namespace + "/" + machineName + "/config-uid"))
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
	})

	It("needs no data Secret if it enrolled, and keeps the hash of its token", func(ctx SpecContext) {
		s := newSite(newCluster(), newConfig(enrolledHost), newPool("worker"), newPool("infra"))
		config := s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(reasonOf(config, bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.HostEnrolledReason))
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		Expect(config.Annotations).To(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, "of the token"))
		Expect(s.Get(ctx, key, &corev1.Secret{})).To(Satisfy(apierrors.IsNotFound))
	})

	It("is recorded as one that has joined if it was adopted, with its Machine as the owner, or its Cluster", func(ctx SpecContext) {
		adopted := func(config *bootstrapv1.PoolbootConfig) {
			withoutMachine(config)
			config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionPreview}
			config.Annotations = nil
		}
		for _, hasMachine := range []bool{false, true} {
			machine := newMachine(nil)
			machine.Labels = map[string]string{clusterv1.ClusterNameLabel: newCluster().Name}
			machine.Spec.Bootstrap.DataSecretName = new("of-another-provider")
			if hasMachine {
				machine.Status.NodeRef.Name = "edge-7"
			}
			s := newSite(newCluster(), newConfig(adopted), machine, newPool("worker"), newPool("infra"))
			config := s.settle(ctx)
			Expect(config.Annotations).To(Equal(map[string]string{
				bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked), bootstrapv1.PointerIDAnnotation: bootstrapv1.AdoptedPointerID}))
			Expect(config.OwnerReferences).To(ConsistOf(HaveField("Kind", map[bool]string{false: "Cluster", true: "Machine"}[hasMachine])))
			Expect(config.Finalizers).To(ContainElement(bootstrapv1.Finalizer))
			Expect(reasonOf(config, bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.HostAdoptedReason))
			Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
			Expect(config.Status.ConfigServer.URL).To(Equal(serverURL))
			Expect(s.Get(ctx, key, &corev1.Secret{})).To(Satisfy(apierrors.IsNotFound))
		}
	})

	It("gets its Machine as the owner also if it was adopted before the Machine had its Node", func(ctx SpecContext) {
		machine := newMachine(nil)
		machine.Labels = map[string]string{clusterv1.ClusterNameLabel: newCluster().Name}
		s := newSite(newCluster(), newConfig(withoutMachine, func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionPreview}
		}), machine, newPool("worker"), newPool("infra"))
		Expect(s.settle(ctx).OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
		Expect(s.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		machine.Status.NodeRef.Name = "edge-7"
		Expect(s.Status().Update(ctx, machine)).To(Succeed())
		Expect(s.settle(ctx).OwnerReferences).To(ConsistOf(HaveField("Kind", "Machine")))
	})

	It("keeps its Node if it was adopted, without what Poolboot wrote to it", func(ctx SpecContext) {
		s := newSite(newCluster(), newConfig(enrolledHost, deleted(0), func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionFollow}
		}), newPool("worker"), newPool("infra"))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Labels: map[string]string{poolv1.NodePoolLabel: "infra", "of": "its owner"},
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: key.String(), "poolboot.io/update-state": "Done", "of": "its owner"}}}
		Expect(s.workload.Create(ctx, node)).To(Succeed())
		s.Writes = 0
		s.settle(ctx)
		Expect(s.workload.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(node.Annotations).To(Equal(map[string]string{"of": "its owner"}))
		Expect(node.Labels).To(Equal(map[string]string{"of": "its owner"}))
	})

	It("keeps the pause of the health checks of its Machine when another PoolbootConfig that adopts it too is deleted", func(ctx SpecContext) {
		machine := newMachine(nil)
		machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "poolboot"}
		adopts := func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionFollow}
			config.Spec.PoolRole = "infra"
			record.RevokeToken(config)
		}
		first := newConfig(adopts)
		first.Name, first.UID, first.Status.NodeRef = "first", "first", bootstrapv1.NodeReference{Name: "edge-7", UID: "node-uid"}
		s := newSite(newCluster(), machine, first, newConfig(adopts, deleted(0)), newPool("worker"), newPool("infra"))
		isPaused := func() bool {
			Expect(s.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			return metav1.HasAnnotation(machine.ObjectMeta, clusterv1.MachineSkipRemediationAnnotation)
		}
		s.settle(ctx)
		Expect(s.Get(ctx, key, &bootstrapv1.PoolbootConfig{})).To(Satisfy(apierrors.IsNotFound))
		Expect(isPaused()).To(BeTrue())
	})

	DescribeTable("whose config is deleted loses its Node", func(ctx SpecContext, joined bool, gone bool) {
		s := newSite(newCluster(), newConfig(enrolledHost, deleted(0), func(config *bootstrapv1.PoolbootConfig) {
			if joined {
				config.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
			}
		}), newPool("worker"), newPool("infra"))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Annotations: map[string]string{poolv1.NodeConfigAnnotation: key.String()}}}
		Expect(s.workload.Create(ctx, node)).To(Succeed())
		s.Writes = 0
		s.settle(ctx)
		Expect(apierrors.IsNotFound(s.workload.Get(ctx, client.ObjectKeyFromObject(node), node))).To(Equal(gone))
	},
		Entry("if it never joined", false, true),
		Entry("but not if Pods can run on it", true, false),
	)

	It("whose config is deleted before it booted keeps the Node that it had before", func(ctx SpecContext) {
		s := newSite(newCluster(), newConfig(withoutMachine, deleted(0)), newPool("worker"), newPool("infra"))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Annotations: map[string]string{poolv1.NodeConfigAnnotation: key.String()}}}
		node.Status.NodeInfo.KubeletVersion = "v1.36.3"
		Expect(s.workload.Create(ctx, node)).To(Succeed())
		s.settle(ctx)
		Expect(s.workload.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
	})

	It("is not Ready while its BareMetalHost has other user data", func(ctx SpecContext) {
		s := newSite(newCluster(), newConfig(withoutMachine, func(config *bootstrapv1.PoolbootConfig) {
			conditions.Set(config, metav1.Condition{Type: bootstrapv1.UserDataSetCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UserDataTakenReason, Message: "remove it"})
		}), newPool("worker"), newPool("infra"))
		Expect(conditions.GetMessage(s.settle(ctx), clusterv1.ReadyCondition)).To(Equal("UserDataSet: remove it"))
	})
})
