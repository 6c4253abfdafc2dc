package integration

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// cordons returns how often a Node was cordoned.
func cordons(history *site.NodeHistory, name string) (count int) {
	wasCordoned := false
	for _, version := range history.Of(name) {
		if version.Node.Spec.Unschedulable && !wasCordoned {
			count++
		}
		wasCordoned = version.Node.Spec.Unschedulable
	}
	return count
}

var _ = Describe("Firmware settings that wait for a reboot", func() {
	It("are applied by that of the update, in one disruption; those that the BMC refuses hold their host only, until they are corrected", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 2)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 2, Labels: infraLabels})
		nodes := joinHosts(ctx, t, "infra", 2)
		configs := t.Configs(ctx, "infra")
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		before := infra.DeepCopy()
		infra.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())

		hostOf := func(i int) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: t.Namespace, Name: configs[i].Status.HostRef.Name}
		}
		bmh := func(ctx context.Context, i int) *bmov1alpha1.BareMetalHost {
			GinkgoHelper()
			bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: hostOf(i)}
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
			return bmh
		}
		settings := []*bmov1alpha1.HostFirmwareSettings{{ObjectMeta: hostOf(0)}, {ObjectMeta: hostOf(1)}}
		for i, value := range []string{"Disabled", metal3.RefusedValue} {
			settings[i].Spec.Settings = bmov1alpha1.DesiredSettingsMap{"LogicalProc": intstr.FromString(value)}
			t.Create(ctx, settings[i], &bmov1alpha1.HostUpdatePolicy{ObjectMeta: hostOf(i), Spec: bmov1alpha1.HostUpdatePolicySpec{
				FirmwareSettings: bmov1alpha1.HostUpdatePolicyOnReboot, FirmwareUpdates: bmov1alpha1.HostUpdatePolicyOnReboot}})
			Eventually(func(g Gomega) {
				g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(settings[i]), settings[i])).To(Succeed())
				g.Expect(meta.IsStatusConditionTrue(settings[i].Status.Conditions, "ChangeDetected")).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
			Eventually(ctx, func() bool { return bmh(ctx, i).Status.PoweredOn }).Should(BeTrue(), "Metal3 reads it after the deployment")
		}

		By("changing the pool")
		t.Create(ctx, t.MachineConfig("52-firmware", "infra", "/etc/firmware", "1"))
		boot := func(i int) {
			GinkgoHelper()
			Eventually(func() *bmov1alpha1.BareMetalHost { return bmh(ctx, i) }).WithContext(ctx).Should(And(
				HaveField("Status.OperationalStatus", bmov1alpha1.OperationalStatusOK), HaveField("Status.PoweredOn", true)))
			Expect(setNode(ctx, nodes[i], setReady(true))).To(Succeed())
			Expect(setNode(ctx, nodes[i], report(agentv1.Verifying, t.Node(ctx, &configs[i]).Annotations[agentv1.DesiredAnnotation]))).To(Succeed())
			Eventually(ctx, t.Condition(&configs[i], bootstrapv1.UpdatedCondition)).Should(HavePrefix("True Done"))
			Expect(bmh(ctx, i).Annotations).To(And(HaveKey(bootstrapv1.FirmwareRebootAnnotation), Not(HaveKey(bmov1alpha1.RebootAnnotationPrefix))))
			Expect(t.Node(ctx, &configs[i]).Annotations).NotTo(HaveKey(agentv1.Metal3RebootsAnnotation))
			Expect(cordons(history, nodes[i])).To(Equal(1))
		}
		for i := range nodes {
			Eventually(ctx, func() bool { return bmh(ctx, i).Status.PoweredOn }).Should(BeFalse())
			Expect(t.Node(ctx, &configs[i]).Annotations).To(HaveKeyWithValue(agentv1.StateAnnotation, string(agentv1.Rebooting)))
			Expect(setNode(ctx, nodes[i], setReady(false))).To(Succeed())
		}
		Eventually(ctx, t.Condition(&configs[1], bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("False "+bootstrapv1.FirmwareFailedReason),
			ContainSubstring("servicing error: the BMC refused the value of LogicalProc")))
		boot(0)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(settings[0]), settings[0])).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(settings[0]), settings[0])).To(Succeed())
			g.Expect(settings[0].Status.Settings).To(HaveKeyWithValue("LogicalProc", "Disabled"))
		}).WithContext(ctx).Should(Succeed())

		By("correcting the settings that the BMC refuses")
		Expect(bmh(ctx, 1).Status.PoweredOn).To(BeFalse())
		Expect(t.Machine(ctx, &configs[1]).Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(settings[1]), settings[1])).To(Succeed())
		settings[1].Spec.Settings = bmov1alpha1.DesiredSettingsMap{}
		Expect(lab.ManagementClient.Update(ctx, settings[1])).To(Succeed())
		boot(1)
	}, SpecTimeout(5*time.Minute))
})
