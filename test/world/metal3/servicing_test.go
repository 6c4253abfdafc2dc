package metal3_test

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
)

var _ = Describe("firmware of a provisioned host with the policy onReboot", Ordered, func() {
	object := metav1.ObjectMeta{Namespace: namespace, Name: "serviced"}
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: object, Spec: bmov1alpha1.BareMetalHostSpec{
		Online: true, BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}, Image: &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"},
	}}
	settings := &bmov1alpha1.HostFirmwareSettings{ObjectMeta: object, Spec: bmov1alpha1.HostFirmwareSettingsSpec{Settings: bmov1alpha1.DesiredSettingsMap{}}}
	components := &bmov1alpha1.HostFirmwareComponents{ObjectMeta: object, Spec: bmov1alpha1.HostFirmwareComponentsSpec{Updates: []bmov1alpha1.FirmwareUpdate{}}}
	set := func(ctx context.Context, value string) {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(settings), settings)).To(Succeed())
		settings.Spec.Settings = bmov1alpha1.DesiredSettingsMap{"LogicalProc": intstr.FromString(value)}
		if value == "" {
			settings.Spec.Settings = bmov1alpha1.DesiredSettingsMap{}
		}
		Expect(c.Update(ctx, settings)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(settings), settings)).To(Succeed())
			g.Expect(settings.Status.Conditions).To(ContainElement(HaveField("ObservedGeneration", settings.Generation)))
		}).WithContext(ctx).Should(Succeed())
	}
	is := func(ctx context.Context) func() bool {
		return func() bool {
			_ = c.Get(ctx, client.ObjectKeyFromObject(settings), settings)
			return meta.IsStatusConditionTrue(settings.Status.Conditions, "ChangeDetected")
		}
	}
	reboot := func(ctx context.Context) {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		before := host.DeepCopy()
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.RebootAnnotationPrefix, "")
		Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
	}
	status := func(ctx context.Context) func() bmov1alpha1.BareMetalHostStatus {
		return func() bmov1alpha1.BareMetalHostStatus {
			_ = c.Get(ctx, client.ObjectKeyFromObject(host), host)
			return host.Status
		}
	}
	runs := And(HaveField("OperationalStatus", bmov1alpha1.OperationalStatusOK), HaveField("PoweredOn", true))

	BeforeAll(func(ctx SpecContext) {
		for _, object := range []client.Object{host, settings, components, &bmov1alpha1.HostUpdatePolicy{ObjectMeta: object, Spec: bmov1alpha1.HostUpdatePolicySpec{
			FirmwareSettings: bmov1alpha1.HostUpdatePolicyOnReboot, FirmwareUpdates: bmov1alpha1.HostUpdatePolicyOnReboot,
		}}} {
			Expect(c.Create(ctx, object)).To(Succeed())
		}
		Eventually(status(ctx)).WithContext(ctx).Should(runs)
	})

	It("is applied when the operator has powered the host off, which boots once", func(ctx SpecContext) {
		set(ctx, "Disabled")
		Expect(is(ctx)()).To(BeTrue())
		before := len(power.of(host)())
		reboot(ctx)
		Eventually(status(ctx)).WithContext(ctx).Should(HaveField("OperationalStatus", bmov1alpha1.OperationalStatusServicing))
		Expect(host.Annotations).NotTo(HaveKey(bmov1alpha1.RebootAnnotationPrefix))
		Eventually(status(ctx)).WithContext(ctx).Should(runs)
		Eventually(is(ctx)).WithContext(ctx).Should(BeFalse())
		Expect(settings.Status.Settings).To(HaveKeyWithValue("LogicalProc", "Disabled"))
		Expect(power.of(host)()[before:]).To(Equal([]string{"serviced is off", "serviced boots again"}))
	})

	It("keeps the host off while the BMC refuses it, until it is removed", func(ctx SpecContext) {
		set(ctx, metal3.RefusedValue)
		reboot(ctx)
		Eventually(status(ctx)).WithContext(ctx).Should(And(HaveField("ErrorType", bmov1alpha1.ServicingError), HaveField("ErrorCount", BeNumerically(">", 1)), HaveField("PoweredOn", false)))
		set(ctx, "")
		Eventually(status(ctx)).WithContext(ctx).Should(runs)
	})

	It("does not change a host if it is not valid", func(ctx SpecContext) {
		set(ctx, "Sometimes")
		Expect(meta.IsStatusConditionFalse(settings.Status.Conditions, "Valid")).To(BeTrue())
		before := len(power.of(host)())
		reboot(ctx)
		Eventually(power.of(host)).WithContext(ctx).Should(HaveLen(before + 2))
		Expect(settings.Status.Settings).To(HaveKeyWithValue("LogicalProc", "Disabled"))
		set(ctx, "Disabled")
	})

	It("updates a component, once", func(ctx SpecContext) {
		Expect(c.Get(ctx, client.ObjectKeyFromObject(components), components)).To(Succeed())
		components.Spec.Updates = []bmov1alpha1.FirmwareUpdate{{Component: "bios", URL: "http://images.example.com/bios"}}
		Expect(c.Update(ctx, components)).To(Succeed())
		Eventually(func() bool {
			_ = c.Get(ctx, client.ObjectKeyFromObject(components), components)
			return meta.IsStatusConditionTrue(components.Status.Conditions, "ChangeDetected")
		}).WithContext(ctx).Should(BeTrue())
		reboot(ctx)
		Eventually(func() []bmov1alpha1.FirmwareUpdate {
			_ = c.Get(ctx, client.ObjectKeyFromObject(components), components)
			return components.Status.Updates
		}).WithContext(ctx).Should(Equal(components.Spec.Updates))
		Eventually(status(ctx)).WithContext(ctx).Should(runs)
	})
})
