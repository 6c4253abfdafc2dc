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
			Image:    &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"},
			UserData: &corev1.SecretReference{Name: "alone"},
		},
	}
	status := func(g Gomega, ctx SpecContext) bmov1alpha1.BareMetalHostStatus {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		return host.Status
	}

	It("says what is wrong when its user data is not there", func(ctx SpecContext) {
		Expect(c.Create(ctx, host)).To(Succeed())
		Eventually(status).WithContext(ctx).Should(And(
			HaveField("OperationalStatus", bmov1alpha1.OperationalStatusError),
			HaveField("ErrorMessage", ContainSubstring(`"alone" not found`))))
		Expect(power.of(host)()).To(BeEmpty())
	})

	It("has the hardware that its annotation says", func() {
		Expect(host.Status.HardwareDetails.CPU).To(Equal(bmov1alpha1.CPU{Model: "AMD EPYC 9654P", Count: 192}))
	})

	It("boots with the user data as soon as it is there, the key userData before value", func(ctx SpecContext) {
		Expect(c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone"},
			StringData: map[string]string{"userData": "the user data", "value": "something else"},
		})).To(Succeed())
		Eventually(status).WithContext(ctx).Should(And(
			HaveField("Provisioning.State", bmov1alpha1.StateProvisioned),
			HaveField("OperationalStatus", bmov1alpha1.OperationalStatusOK),
			HaveField("PoweredOn", true)))
		Expect(power.of(host)()).To(Equal([]string{"alone boots with the user data"}))
	})

	It("is switched off when it is deleted", func(ctx SpecContext) {
		Expect(c.Delete(ctx, host)).To(Succeed())
		Eventually(c.Get).WithContext(ctx).WithArguments(client.ObjectKeyFromObject(host), host).Should(Satisfy(apierrors.IsNotFound))
		Expect(power.of(host)()).To(Equal([]string{"alone boots with the user data", "alone is off"}))
	})
})
