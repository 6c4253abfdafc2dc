package metal3_test

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("a simulated host with a BMC Secret that does not exist", Ordered, func() {
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "locked"}, Spec: bmov1alpha1.BareMetalHostSpec{
		Online: true, BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "locked-bmc"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "locked-bmc"}}
	status := func() (bmov1alpha1.BareMetalHostStatus, error) {
		err := c.Get(context.Background(), client.ObjectKeyFromObject(host), host)
		return host.Status, err
	}
	isLocked := And(HaveField("OperationalStatus", bmov1alpha1.OperationalStatusError), HaveField("ErrorType", bmov1alpha1.RegistrationError),
		HaveField("ErrorMessage", ContainSubstring("The BMC secret "+namespace+"/locked-bmc does not exist")))
	isOK := And(HaveField("OperationalStatus", bmov1alpha1.OperationalStatusOK), HaveField("ErrorType", BeEmpty()), HaveField("ErrorMessage", ""))

	It("is registering, with an error, and is retried until the Secret exists", func(ctx SpecContext) {
		Expect(c.Create(ctx, host)).To(Succeed())
		Eventually(status).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateRegistering), isLocked, HaveField("ErrorCount", BeNumerically(">", 1))))
		createBMCSecret(ctx, secret.Namespace, secret.Name)
		Eventually(status).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateAvailable), isOK, HaveField("ErrorCount", 0)))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(secret.Labels).To(HaveKeyWithValue("environment.metal3.io", "baremetal"))
		Expect(secret.OwnerReferences).To(ConsistOf(And(HaveField("UID", host.UID), HaveField("Controller", BeNil()))))
	})

	It("has the error although it is provisioned, and keeps running", func(ctx SpecContext) {
		before := host.DeepCopy()
		host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"}
		Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		Eventually(status).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioned), HaveField("PoweredOn", true)))
		Expect(c.Delete(ctx, secret)).To(Succeed())
		Eventually(status).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioned), isLocked))
		createBMCSecret(ctx, secret.Namespace, secret.Name)
		Eventually(status).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioned), isOK, HaveField("PoweredOn", true)))
		Expect(power.of(host)()).To(Equal([]string{"locked boots with "}))
	})

	It("is deleted all the same", func(ctx SpecContext) {
		Expect(c.Delete(ctx, secret)).To(Succeed())
		Eventually(status).Should(isLocked)
		Expect(c.Delete(ctx, host)).To(Succeed())
		Eventually(c.Get).WithContext(ctx).WithArguments(client.ObjectKeyFromObject(host), host).Should(Satisfy(apierrors.IsNotFound))
		Expect(power.of(host)()).To(Equal([]string{"locked boots with ", "locked is off", "locked is off"}), "cleaned, then off")
	})
})

var _ = Describe("a simulated host while Ironic is stopped", func() {
	It("waits, and goes on by itself some time after Ironic is started", func(ctx SpecContext) {
		host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "patient"}, Spec: bmov1alpha1.BareMetalHostSpec{
			BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}}}
		state := func() (bmov1alpha1.ProvisioningState, error) {
			err := c.Get(context.Background(), client.ObjectKeyFromObject(host), host)
			return host.Status.Provisioning.State, err
		}
		simulator.StopIronic()
		DeferCleanup(simulator.StartIronic)
		Expect(c.Create(ctx, host)).To(Succeed())
		Eventually(func() ([]string, error) { _, err := state(); return host.Finalizers, err }).ShouldNot(BeEmpty())
		Consistently(state).WithTimeout(2*retryInterval).Should(BeEmpty(), "also after a retry")
		simulator.StartIronic()
		Expect(state()).To(BeEmpty(), "nothing wakes the operator")
		Eventually(state).WithTimeout(10 * retryInterval).Should(Equal(bmov1alpha1.StateAvailable))
	})
})
