package rollout

import (
	"encoding/json"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("status of hosts that wait for a reboot", func() {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "edge", Name: name} }
	rendered := func(name string, arguments ...string) *poolv1.MachineConfig {
		c := &poolv1.MachineConfig{ObjectMeta: named(name), Spec: poolv1.MachineConfigSpec{KernelArguments: arguments}}
		c.Labels = map[string]string{poolv1.RenderedForLabel: "infra"}
		return c
	}
	// pending returns a provisioned host with firmware settings that wait for a reboot.
	pending := func(name string, valid metav1.ConditionStatus) []client.Object {
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: named(name), Spec: bmov1alpha1.BareMetalHostSpec{Online: true}}
		bmh.Status.Provisioning.State, bmh.Status.PoweredOn, bmh.Status.OperationalStatus = bmov1alpha1.StateProvisioned, true, bmov1alpha1.OperationalStatusOK
		settings := &bmov1alpha1.HostFirmwareSettings{ObjectMeta: named(name)}
		settings.Status.Conditions = []metav1.Condition{
			{Type: string(bmov1alpha1.FirmwareSettingsChangeDetected), Status: metav1.ConditionTrue},
			{Type: string(bmov1alpha1.FirmwareSettingsValid), Status: valid, Message: "no BIOS setting Turbo"},
		}
		return []client.Object{bmh, settings, &bmov1alpha1.HostUpdatePolicy{ObjectMeta: named(name), Spec: bmov1alpha1.HostUpdatePolicySpec{FirmwareSettings: bmov1alpha1.HostUpdatePolicyOnReboot}}}
	}

	It("prints how each reboots, and what happens to its pending firmware", func(ctx SpecContext) {
		old := waits("b")
		old.Status.Update.UnsupportedChanges = []string{"Kexec"}
		s := newSite(func(p *poolv1.MachineConfigPool) { p.Spec.Updates.RebootMethod = poolv1.RebootKexec }, waits("a"), old, waits("c"), waits("d"), done("e"), applies("f"))
		for _, object := range append(append(pending("bmh-c", metav1.ConditionTrue), pending("bmh-d", metav1.ConditionFalse)...), rendered(oldConfig), rendered(newConfig, "quiet")) {
			Expect(s.live.Create(ctx, object)).To(Succeed())
		}
		var hosts []HostStatus
		Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(s.run("status", "infra", "-o", "json"))), &hosts)).To(Succeed())
		reboots := map[string]string{}
		for _, h := range hosts {
			reboots[h.Node] = h.Reboot
		}
		Expect(reboots).To(Equal(map[string]string{
			"a": "yes: kernelArguments; by Kexec",
			"b": "yes: kernelArguments; by Full instead of Kexec: the host reports that it can't",
			"c": "yes: kernelArguments; by Metal3, which applies pending firmware settings or updates",
			"d": "yes: kernelArguments; by Kexec; pending firmware is not applied: HostFirmwareSettings edge/bmh-d is not valid: no BIOS setting Turbo",
			"e": "", "f": "",
		}))
		Expect(clitest.Rows(s.run("status", "infra").Out)).To(ContainElement(HaveSuffix("waits for other hosts. Reboot: yes: kernelArguments; by Kexec")))
	})
})
