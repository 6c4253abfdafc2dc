package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"unicode"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Derived labels", func() {
	rack := nodev1.NodeLabelRule{Key: "example.com/rack", ValueExpression: `host.labels["rack"]`, OnMissing: nodev1.OnMissingBlock}
	bios := nodev1.NodeLabelRule{Key: "node-restriction.kubernetes.io/bios", ValueExpression: `host.hardware.bios.version`, OnMissing: nodev1.OnMissingBlock}
	class := nodev1.NodeLabelRule{Key: "example.com/class", ValueExpression: `host.hardware.memoryMebibytes >= 262144 ? "large" : "small"`}

	// setRules sets the label rules of the pool infra.
	setRules := func(ctx context.Context, t *tenant.Tenant, rules ...nodev1.NodeLabelRule) {
		GinkgoHelper()
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		before := infra.DeepCopy()
		infra.Spec.Node.LabelRules = rules
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
	}
	key := func(t *tenant.Tenant) client.ObjectKey {
		return client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)}
	}
	getNode := func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) error {
		return lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: t.Machine(ctx, config).Name}, &corev1.Node{})
	}

	It("answer a host with 503 until the fact exists, and are on its Node from its first version", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		setRules(ctx, t, rack, class)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: func(spec *bootstrapv1.BootSpec) {
			spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/who", ValueExpression: `cluster.name + "." + machine.labels["rack.node.cluster.x-k8s.io/id"]`}}
		}})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(Equal("False HostFactMissing: host " + t.HostName(0) +
			": MachineConfigPool " + t.Namespace + `/infra spec.node.labelRules[example.com/rack]: host.labels["rack"] is missing: add this fact to the BareMetalHost, or set onMissing: Skip`))
		Eventually(ctx, func() []int { return hosts.get(key(t)).statusCodes() }).Should(ContainElement(http.StatusServiceUnavailable))
		Expect(hosts.get(key(t)).statusCodes()).To(HaveEach(http.StatusServiceUnavailable))
		Expect(getNode(ctx, t, config)).To(Satisfy(apierrors.IsNotFound))
		shell := &terminal{dir: GinkgoT().TempDir()}
		Expect(unwrap(shell.run(ctx, "kubectl poolboot explain host "+t.HostName(0)+" -n "+t.Namespace))).To(And(
			MatchRegexp(`example.com/rack <none> Blocked .*host.labels\["rack"\] is missing`), MatchRegexp(`example.com/class large Set .*memoryMebibytes`),
			MatchRegexp(`example.com/who \S+ Set PoolbootConfig`)))
		Expect(shell.code).To(Equal(2))

		By("measuring the boot from the host's first request")
		retried := func() (*metav1.MicroTime, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.Requests.RequestedTime, err
		}
		_, err = retried()
		Expect(err).NotTo(HaveOccurred())
		first := config.Status.Requests.FirstRequestedTime
		Expect(first).NotTo(BeNil())
		Eventually(ctx, retried).Should(HaveField("Time", BeTemporally(">", first.Time)))
		Expect(config.Status.Requests.FirstRequestedTime).To(Equal(first))
		stage, since := record.StageOf(config)
		Expect(stage).To(Equal(record.StagePreparing))
		Expect(since).To(BeTemporally("==", first.Time))
		Expect(sumManagerMetric(ctx, "poolboot_boots_total", map[string]string{"cluster": t.Namespace + "/" + t.Namespace,
			"outcome": bootstrapv1.HostFactMissingReason})()).To(Equal(1.0))

		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(lab.ManagementClient.Get(ctx, key(t), bmh)).To(Succeed())
		before := bmh.DeepCopy()
		bmh.Labels = map[string]string{"rack": "r7"}
		Expect(lab.ManagementClient.Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())

		host := waitForConfiguration(ctx, t, config)
		labels := map[string]string{"example.com/rack": "r7", "example.com/class": "large", "example.com/who": t.Namespace + ".r7"}
		Eventually(ctx, func() []site.NodeVersion { return history.Of(config.Status.NodeRef.Name) }).ShouldNot(BeEmpty())
		env, err := host.readFile("/etc/poolboot/kubelet.env")
		Expect(err).NotTo(HaveOccurred())
		for name, value := range labels {
			Expect(history.Of(config.Status.NodeRef.Name)[0].Node.Labels).To(HaveKeyWithValue(name, value))
			Expect(env).To(ContainSubstring(name + "=" + value))
		}
		Expect(config.Status.DerivedNodeLabels).To(Equal(labels))
	})

	It("delay the Node of an inline host until its HardwareData has the fact, which Poolboot watches", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		setRules(ctx, t, bios)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: func(spec *bootstrapv1.BootSpec) {
			spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
		}})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(
			HavePrefix("False HostFactMissing"), ContainSubstring("host.hardware.bios.version is missing")))
		bmh := &bmov1alpha1.BareMetalHost{}
		Eventually(ctx, func(ctx context.Context) (bmov1alpha1.ProvisioningState, error) {
			err := lab.ManagementClient.Get(ctx, key(t), bmh)
			return bmh.Status.Provisioning.State, err
		}).Should(Equal(bmov1alpha1.StateProvisioned))
		// No other change triggers another reconcile of the boot.
		Consistently(ctx, func() error { return getNode(ctx, t, config) }).Should(Satisfy(apierrors.IsNotFound))

		data := &bmov1alpha1.HardwareData{}
		Expect(lab.ManagementClient.Get(ctx, key(t), data)).To(Succeed())
		before := data.DeepCopy()
		data.Spec.HardwareDetails.Firmware.BIOS.Version = "1.9.2"
		Expect(lab.ManagementClient.Patch(ctx, data, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
		Expect(t.Node(ctx, config).Labels).To(HaveKeyWithValue(bios.Key, "1.9.2"))
	})

	It("block on invalid values, which messages quote and truncate, or sanitize them with onInvalid Sanitize", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		serial := nodev1.NodeLabelRule{Key: "example.com/serial", ValueExpression: "host.hardware.serial"}
		vendor := nodev1.NodeLabelRule{Key: "example.com/vendor", ValueExpression: "host.hardware.vendor"}
		setRules(ctx, t, serial)
		details, err := json.Marshal(bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{
			Manufacturer: strings.Repeat("v", 10_000), SerialNumber: "7X\x1b[31m\r\nK2\x00" + strings.Repeat("\x07", 5_000)}})
		Expect(err).NotTo(HaveOccurred())
		t.Create(ctx, &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Name: t.HostName(0), Annotations: map[string]string{bmov1alpha1.HardwareDetailsAnnotation: string(details)}},
			Spec: bmov1alpha1.BareMetalHostSpec{Online: true, BootMACAddress: "52:54:00:00:00:01",
				BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
		})
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False NodeLabelRuleInvalid"),
			ContainSubstring("spec.node.labelRules[example.com/serial]"), ContainSubstring(`"7X\x1b[31m\r\nK2`)))
		message, err := t.Condition(config, bootstrapv1.BootPreparedCondition)(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.ContainsFunc(message, unicode.IsControl)).To(BeFalse(), "%q", message)
		Expect(len(message)).To(BeNumerically("<", 1_000))
		Eventually(ctx, func() []int { return hosts.get(key(t)).statusCodes() }).Should(And(Not(BeEmpty()), HaveEach(http.StatusServiceUnavailable)))
		Expect(getNode(ctx, t, config)).To(Satisfy(apierrors.IsNotFound))

		serial.OnInvalid, vendor.OnInvalid = nodev1.OnInvalidSanitize, nodev1.OnInvalidSanitize
		setRules(ctx, t, serial, vendor)
		waitForConfiguration(ctx, t, config)
		Expect(t.Node(ctx, config).Labels).To(And(HaveKeyWithValue("example.com/serial", "7X-31m-K2"), HaveKeyWithValue("example.com/vendor", strings.Repeat("v", 63))))
	})

	It("are refused by the webhook, with the line and column of the mistake", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		pool := t.Pool("gpu")
		pool.Spec.Node.LabelRules = []nodev1.NodeLabelRule{rack, {Key: "zone", ValueExpression: "host.name +\n  host.nmae"}}
		Expect(lab.ManagementClient.Create(ctx, pool)).To(MatchError(ContainSubstring("spec.node.labelRules[1].valueExpression: Invalid value: 2:7: undefined field 'nmae'")))
		pool.Spec.Node.LabelRules = []nodev1.NodeLabelRule{rack, {Key: "cpus", ValueExpression: "host.hardware.cpu.count"}}
		Expect(lab.ManagementClient.Create(ctx, pool)).To(MatchError(ContainSubstring("spec.node.labelRules[1].valueExpression: Invalid value: 1:1: the result is of type int")))
		pool.Spec.Node.LabelRules = []nodev1.NodeLabelRule{rack, {Key: "twins", ValueExpression: `host.hardware.disks.all(a, host.hardware.disks.all(b, a.name == b.name)) ? "a" : "b"`}}
		Expect(lab.ManagementClient.Create(ctx, pool)).To(MatchError(And(ContainSubstring("spec.node.labelRules[1].valueExpression: Invalid value"), ContainSubstring("its estimated cost is"))))
		pool.Spec.Node.LabelRules = []nodev1.NodeLabelRule{rack, rack}
		Expect(lab.ManagementClient.Create(ctx, pool)).To(MatchError(ContainSubstring(`spec.node.labelRules[1]: Duplicate value`)))
	})
})
