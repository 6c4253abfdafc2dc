package host_test

import (
	"context"
	"errors"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

const (
	namespace        = "metal"
	infraAPIVersion  = "infrastructure.cluster.x-k8s.io/v1beta2"
	metal3MachineCRD = "metal3machines.infrastructure.cluster.x-k8s.io"
)

var _ = Describe("The host of a Machine", func() {
	var (
		ctx           context.Context
		crd           *apiextensionsv1.CustomResourceDefinition
		machine       *clusterv1.Machine
		metal3Machine *unstructured.Unstructured
		bmh           *bmov1alpha1.BareMetalHost
	)

	BeforeEach(func(specCtx SpecContext) {
		ctx = specCtx
		crd = &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name:   metal3MachineCRD,
			Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
		}}
		machine = &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "infra-x7k2p"},
			Spec: clusterv1.MachineSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: "infra-m3m",
			}},
		}
		metal3Machine = &unstructured.Unstructured{}
		metal3Machine.SetAPIVersion(infraAPIVersion)
		metal3Machine.SetKind("Metal3Machine")
		metal3Machine.SetNamespace(namespace)
		metal3Machine.SetName("infra-m3m")
		metal3Machine.SetAnnotations(map[string]string{host.Annotation: namespace + "/rack1-u12"})
		metal3Machine.SetOwnerReferences([]metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Machine", Name: "another-kind-of-machine", UID: "1"},
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: "2"},
		})
		bmh = &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rack1-u12", UID: "3f2c"},
			Spec: bmov1alpha1.BareMetalHostSpec{ConsumerRef: &corev1.ObjectReference{
				// An older version of the same group: the version does not matter for the consumer.
				APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine", Namespace: namespace, Name: "infra-m3m",
			}},
			Status: bmov1alpha1.BareMetalHostStatus{
				Provisioning: bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateProvisioned},
			},
		}
	})

	reader := func() client.WithWatch {
		scheme := runtime.NewScheme()
		Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
		Expect(bmov1alpha1.AddToScheme(scheme)).To(Succeed())
		Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd, metal3Machine, bmh).Build()
	}

	It("is found through the Metal3Machine and its BareMetalHost", func() {
		found, err := host.ForMachine(ctx, reader(), machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Object.Name).To(Equal("rack1-u12"))
		found.Object = nil
		Expect(found).To(Equal(&host.Host{
			Name: "rack1-u12", Namespace: namespace, UID: "3f2c",
			ProviderID:    "metal3://metal/rack1-u12/infra-m3m",
			State:         bmov1alpha1.StateProvisioned,
			Metal3Machine: types.NamespacedName{Namespace: namespace, Name: "infra-m3m"},
		}))
	})

	It("has the providerID that its Metal3Machine already has", func() {
		Expect(unstructured.SetNestedField(metal3Machine.Object, "metal3://3f2c", "spec", "providerID")).To(Succeed())
		found, err := host.ForMachine(ctx, reader(), machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.ProviderID).To(Equal("metal3://3f2c"))
	})

	It("is never in another namespace, whatever the annotation contains", func() {
		metal3Machine.SetAnnotations(map[string]string{host.Annotation: "elsewhere/rack1-u12"})
		found, err := host.ForMachine(ctx, reader(), machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Namespace).To(Equal(namespace))
	})

	DescribeTable("is not ready",
		func(change func(), why string) {
			change()
			_, err := host.ForMachine(ctx, reader(), machine)
			var notReady *host.NotReadyError
			Expect(errors.As(err, &notReady)).To(BeTrue(), "got %v", err)
			Expect(notReady.Why).To(Equal(why))
		},
		Entry("while the Metal3Machine does not exist",
			func() { machine.Spec.InfrastructureRef.Name = "later" },
			"Metal3Machine metal/later does not exist yet"),
		Entry("while the Metal3Machine has chosen no host",
			func() { metal3Machine.SetAnnotations(nil) },
			"Metal3Machine metal/infra-m3m has no host yet: it has no annotation metal3.io/BareMetalHost"),
		Entry("while the chosen host does not exist",
			func() { metal3Machine.SetAnnotations(map[string]string{host.Annotation: "metal/gone"}) },
			"BareMetalHost metal/gone of Metal3Machine metal/infra-m3m does not exist"),
		Entry("while the host names no consumer",
			func() { bmh.Spec.ConsumerRef = nil },
			"BareMetalHost metal/rack1-u12 does not name Metal3Machine metal/infra-m3m in spec.consumerRef"),
		Entry("while another Metal3Machine uses the host",
			func() { bmh.Spec.ConsumerRef.Name = "other" },
			"BareMetalHost metal/rack1-u12 does not name Metal3Machine metal/infra-m3m in spec.consumerRef"),
		Entry("while an object of another group uses the host",
			func() { bmh.Spec.ConsumerRef.APIVersion = "example.com/v1" },
			"BareMetalHost metal/rack1-u12 does not name Metal3Machine metal/infra-m3m in spec.consumerRef"),
		Entry("while a Metal3Machine in another namespace uses the host",
			func() { bmh.Spec.ConsumerRef.Namespace = "elsewhere" },
			"BareMetalHost metal/rack1-u12 does not name Metal3Machine metal/infra-m3m in spec.consumerRef"),
	)

	DescribeTable("needs a user where Poolboot does not use it, which no waiting changes",
		func(change func(), why string) {
			change()
			_, err := host.ForMachine(ctx, reader(), machine)
			Expect(err).To(MatchError(HavePrefix(why)))
			Expect(err).To(MatchError(HaveSuffix("register the host there")))
			Expect(err).To(And(HaveField("NeedsUser", true), HaveField("Reason()", bootstrapv1.HostNotUsableReason)))
		},
		Entry("as a HostClaim of a Machine",
			func() {
				machine.Spec.InfrastructureRef.Kind, machine.Spec.InfrastructureRef.APIGroup = "HostClaim", "metal3.io"
			},
			"spec.infrastructureRef of Machine metal/infra-x7k2p is HostClaim infra-m3m"),
		Entry("as a host of a HostClaim",
			func() {
				bmh.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "metal3.io/v1alpha1", Kind: "HostClaim", Namespace: "tenant", Name: "claim-1"}
			},
			"BareMetalHost metal/rack1-u12 of Metal3Machine metal/infra-m3m belongs to HostClaim tenant/claim-1 by its spec.consumerRef"),
		Entry("as a host in another namespace",
			func() { metal3Machine.SetAnnotations(map[string]string{host.Annotation: "hosts/rack2-u1"}) },
			"the annotation metal3.io/BareMetalHost of Metal3Machine metal/infra-m3m is hosts/rack2-u1, which is in another namespace"),
	)

	DescribeTable("is an error other than a NotReadyError",
		func(change func(), message string) {
			change()
			_, err := host.ForMachine(ctx, reader(), machine)
			var notReady *host.NotReadyError
			Expect(errors.As(err, &notReady)).To(BeFalse())
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("when the Metal3 provider is not installed",
			func() { crd.Name = "somethings.example.com" },
			"host of Machine metal/infra-x7k2p: failed to get object from ref"),
		Entry("when the providerID is not a string",
			func() {
				Expect(unstructured.SetNestedField(metal3Machine.Object, int64(1), "spec", "providerID")).To(Succeed())
			},
			"Metal3Machine metal/infra-m3m: .spec.providerID accessor error"),
	)

	DescribeTable("is nil for another infrastructure provider",
		func(change func()) {
			change()
			Expect(host.ForMachine(ctx, reader(), machine)).To(BeNil())
		},
		Entry("of another kind", func() { machine.Spec.InfrastructureRef.Kind = "DockerMachine" }),
		Entry("of another group", func() { machine.Spec.InfrastructureRef.APIGroup = "infrastructure.example.com" }),
	)

	It("is an error when hosts cannot be read", func() {
		broken := interceptor.NewClient(reader(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, ok := obj.(*bmov1alpha1.BareMetalHost); ok {
					return errors.New("connection refused")
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		_, err := host.ForMachine(ctx, broken, machine)
		Expect(err).To(MatchError("BareMetalHost metal/rack1-u12: connection refused"))
	})

	Describe("with its Machine", func() {
		It("is mapped to the Machine", func() {
			name, err := host.MachineOf(ctx, reader(), bmh)
			Expect(err).NotTo(HaveOccurred())
			Expect(name).To(Equal(client.ObjectKeyFromObject(machine)))
		})

		DescribeTable("is mapped to no Machine",
			func(change func()) {
				change()
				name, err := host.MachineOf(ctx, reader(), bmh)
				Expect(err).NotTo(HaveOccurred())
				Expect(name).To(BeZero())
			},
			Entry("when it has no consumer", func() { bmh.Spec.ConsumerRef = nil }),
			Entry("when its Metal3Machine does not exist", func() { bmh.Spec.ConsumerRef.Name = "gone" }),
			Entry("when its Metal3Machine has no Machine yet", func() { metal3Machine.SetOwnerReferences(nil) }),
		)
	})
})
