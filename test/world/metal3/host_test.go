package metal3_test

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("a simulated host", Ordered, func() {
	host := &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "alone",
			Annotations: map[string]string{bmov1alpha1.HardwareDetailsAnnotation: `{"cpu": {"model": "AMD EPYC 9654P", "count": 192}}`},
		},
		Spec: bmov1alpha1.BareMetalHostSpec{
			Online:   true,
			BMC:      bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"},
			Image:    &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"},
			UserData: &corev1.SecretReference{Name: "alone"},
		},
	}
	status := func(g Gomega, ctx SpecContext) bmov1alpha1.BareMetalHostStatus {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		return host.Status
	}

	It("waits for missing user data without an error in its status", func(ctx SpecContext) {
		watch, err := c.Watch(ctx, &bmov1alpha1.BareMetalHostList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": "alone"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watch.Stop)
		Expect(c.Create(ctx, host)).To(Succeed())
		var states []bmov1alpha1.ProvisioningState
		for event := range watch.ResultChan() {
			if state := event.Object.(*bmov1alpha1.BareMetalHost).Status.Provisioning.State; len(states) == 0 || states[len(states)-1] != state {
				states = append(states, state)
			}
			if states[len(states)-1] == bmov1alpha1.StateProvisioning {
				break
			}
		}
		Expect(states).To(Equal([]bmov1alpha1.ProvisioningState{"", bmov1alpha1.StateRegistering, bmov1alpha1.StateInspecting, bmov1alpha1.StatePreparing,
			bmov1alpha1.StateAvailable, bmov1alpha1.StateProvisioning}))
		Expect(status(Default, ctx)).To(And(HaveField("OperationalStatus", bmov1alpha1.OperationalStatusOK), HaveField("ErrorMessage", "")))
		Expect(power.of(host)()).To(BeEmpty())
	})

	It("has the hardware in its annotation", func() {
		Expect(host.Status.HardwareDetails.CPU).To(Equal(bmov1alpha1.CPU{Model: "AMD EPYC 9654P", Count: 192}))
	})

	It("boots with the user data as soon as it exists, from the key userData before value", func(ctx SpecContext) {
		Expect(c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone"},
			StringData: map[string]string{"userData": "the user data", "value": "something else"},
		})).To(Succeed())
		Eventually(status).WithContext(ctx).Should(And(
			HaveField("Provisioning.State", bmov1alpha1.StateProvisioned),
			HaveField("OperationalStatus", bmov1alpha1.OperationalStatusOK),
			HaveField("PoweredOn", true)))
		Expect(power.of(host)()).To(Equal([]string{"alone boots with the user data"}))
		secret := &corev1.Secret{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "alone"}, secret)).To(Succeed())
		Expect(secret.Labels).To(HaveKeyWithValue("environment.metal3.io", "baremetal"))
		history := host.Status.OperationHistory
		for _, operation := range []bmov1alpha1.OperationMetric{history.Register, history.Inspect, history.Provision} {
			Expect(operation.End.IsZero()).To(BeFalse())
		}
	})

	It("is provisioned some time after it runs, and has no power state until then", func(ctx SpecContext) {
		late := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "late"}, Spec: *host.Spec.DeepCopy()}
		Expect(c.Create(ctx, late)).To(Succeed())
		Eventually(power.of(late)).WithContext(ctx).Should(HaveLen(1))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(late), late)).To(Succeed())
		Expect(late.Status).To(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioning), HaveField("PoweredOn", false)))
		Eventually(func() (bmov1alpha1.BareMetalHostStatus, error) {
			return late.Status, c.Get(ctx, client.ObjectKeyFromObject(late), late)
		}).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioned), HaveField("PoweredOn", true)))
		Expect(power.of(late)()).To(HaveLen(1), "it was powered on once")
	})

	It("waits for missing network data without an error in its status", func(ctx SpecContext) {
		waiting := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting"}, Spec: *host.Spec.DeepCopy()}
		waiting.Spec.NetworkData = &corev1.SecretReference{Name: "waiting-networkdata"}
		Expect(c.Create(ctx, waiting)).To(Succeed())
		getStatus := func() (bmov1alpha1.BareMetalHostStatus, error) {
			return waiting.Status, c.Get(ctx, client.ObjectKeyFromObject(waiting), waiting)
		}
		Eventually(getStatus).Should(HaveField("Provisioning.State", bmov1alpha1.StateProvisioning))
		Consistently(getStatus).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioning), HaveField("ErrorMessage", "")))
		Expect(power.of(waiting)()).To(BeEmpty())
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting-networkdata"},
			StringData: map[string]string{"networkData": "links: []"}})).To(Succeed())
		Eventually(getStatus).Should(HaveField("Provisioning.State", bmov1alpha1.StateProvisioned))
	})

	It("is cleaned when a deployment fails, and deployed again after a while", func(ctx SpecContext) {
		power.fail("unlucky")
		unlucky := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "unlucky"}, Spec: *host.Spec.DeepCopy()}
		Expect(c.Create(ctx, unlucky)).To(Succeed())
		getStatus := func() (bmov1alpha1.BareMetalHostStatus, error) {
			return unlucky.Status, c.Get(ctx, client.ObjectKeyFromObject(unlucky), unlucky)
		}
		Eventually(getStatus).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioning),
			HaveField("ErrorType", bmov1alpha1.ProvisioningError), HaveField("OperationalStatus", bmov1alpha1.OperationalStatusError)))
		Eventually(getStatus).Should(And(HaveField("Provisioning.State", bmov1alpha1.StateProvisioned), HaveField("ErrorMessage", "")))
		Expect(unlucky.Status.OperationHistory.Deprovision.End.IsZero()).To(BeFalse())
		Expect(power.of(unlucky)()).To(Equal([]string{"unlucky is off", "unlucky boots with the user data"}))
	})

	It("is powered off when it is deleted", func(ctx SpecContext) {
		Expect(c.Delete(ctx, host)).To(Succeed())
		Eventually(c.Get).WithContext(ctx).WithArguments(client.ObjectKeyFromObject(host), host).Should(Satisfy(apierrors.IsNotFound))
		Expect(power.of(host)()).To(Equal([]string{"alone boots with the user data", "alone is off", "alone is off"}), "cleaned, then off")
	})
})
