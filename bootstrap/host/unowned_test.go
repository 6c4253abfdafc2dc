package host_test

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

var _ = Describe("A host without a Machine", func() {
	find := func(ctx SpecContext, change func(*bmov1alpha1.BareMetalHost)) (*host.Host, error) {
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rack1-u12", UID: "3f2c"}}
		bmh.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		change(bmh)
		scheme := runtime.NewScheme()
		Expect(bmov1alpha1.AddToScheme(scheme)).To(Succeed())
		return host.WithoutMachine(ctx, fake.NewClientBuilder().WithScheme(scheme).WithObjects(bmh).Build(), client.ObjectKey{Namespace: namespace, Name: "rack1-u12"})
	}

	It("has its UID, and no providerID, which would name a Metal3Machine", func(ctx SpecContext) {
		found, err := find(ctx, func(*bmov1alpha1.BareMetalHost) {})
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(And(HaveField("UID", "3f2c"), HaveField("ProviderID", ""), HaveField("Object.Name", "rack1-u12")))
	})

	DescribeTable("is not ready",
		func(ctx SpecContext, change func(*bmov1alpha1.BareMetalHost), why string) {
			_, err := find(ctx, change)
			Expect(err).To(And(BeAssignableToTypeOf(&host.NotReadyError{}), MatchError(ContainSubstring(why))))
		},
		Entry("before it is provisioned", func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateAvailable }, `its state is "available"`),
		Entry("while it is deprovisioned", func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning }, "deprovisioning"),
		Entry("when it has a consumer", func(h *bmov1alpha1.BareMetalHost) {
			h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m1"}
		}, "belongs to Metal3Machine m1"),
		Entry("when it does not exist", func(h *bmov1alpha1.BareMetalHost) { h.Name = "another" }, "does not exist"),
	)
})
