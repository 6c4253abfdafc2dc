package explain

import (
	"encoding/json"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("explain machine of a host of Metal3", func() {
	const group = "infrastructure.cluster.x-k8s.io"
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "edge", Name: name} }
	var (
		bmh           *bmov1alpha1.BareMetalHost
		config        *bootstrapv1.PoolbootConfig
		metal3Cluster *unstructured.Unstructured
		node          *corev1.Node
		infra         string
		answer        *bootReport
		others        []client.Object
	)
	BeforeEach(func() {
		bmh = &bmov1alpha1.BareMetalHost{ObjectMeta: meta("rack1-u12"), Spec: bmov1alpha1.BareMetalHostSpec{ConsumerRef: &corev1.ObjectReference{
			APIVersion: group + "/v1beta2", Kind: "Metal3Machine", Namespace: "edge", Name: "m3"}}}
		bmh.Status.Provisioning.State = bmov1alpha1.StateProvisioning
		config = clitest.PoolbootConfig("infra", "infra-x7k2m", "infra-x7k2m")
		config.Status.DataSecretName = config.Name
		metal3Cluster = &unstructured.Unstructured{}
		metal3Cluster.SetAPIVersion(group + "/v1beta2")
		metal3Cluster.SetKind("Metal3Cluster")
		metal3Cluster.SetNamespace("edge")
		metal3Cluster.SetName("m3c")
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2m", Labels: map[string]string{"node-role.kubernetes.io/infra": "", "poolboot.io/pool": "infra",
			"kubernetes.io/os": "linux", "kubernetes.io/hostname": "infra-x7k2m"}}}
		infra, others = clitest.Pool("infra-1", "infra"), nil
	})
	explained := func() []string {
		GinkgoHelper()
		machine := &clusterv1.Machine{ObjectMeta: meta("infra-x7k2m")}
		machine.Labels = map[string]string{"node-role.kubernetes.io/infra": ""}
		machine.Spec.ClusterName = "infra-1"
		machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: "PoolbootConfig", Name: config.Name, APIGroup: bootstrapv1.GroupVersion.Group}
		machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Machine", Name: "m3", APIGroup: group}
		cluster := &clusterv1.Cluster{ObjectMeta: meta("infra-1")}
		cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Cluster", Name: "m3c", APIGroup: group}
		metal3Machine := &unstructured.Unstructured{}
		metal3Machine.SetAPIVersion(group + "/v1beta2")
		metal3Machine.SetKind("Metal3Machine")
		metal3Machine.SetNamespace("edge")
		metal3Machine.SetName("m3")
		metal3Machine.SetAnnotations(map[string]string{host.Annotation: "edge/rack1-u12"})
		definition := func(name string) *apiextensionsv1.CustomResourceDefinition {
			return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + "." + group, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}}
		}
		to := clitest.NewFakeConnection([]string{infra, clitest.Pool("infra-1", "worker")}, append(others, machine, config, cluster, metal3Machine, metal3Cluster, bmh,
			definition("metal3machines"), definition("metal3clusters"))...)
		to.Own = clitest.NewFakeClientBuilder().WithObjects(node).Build()
		r := clitest.RunOn(to, New, "explain", "machine", "infra-x7k2m", "-o", "json")
		answer = &bootReport{}
		Expect(json.Unmarshal([]byte(r.Out), answer)).To(Succeed(), r.ErrOut)
		Expect(answer.Unseen).To(BeEmpty())
		return answer.Todo
	}

	It("requires no action if Metal3 has no trouble", func() {
		Expect(explained()).To(BeEmpty())
	})

	It("prints that the reboot for an update applies pending firmware", func() {
		runs, handedOut := "rendered-infra-"+strings.Repeat("b", 32), "rendered-infra-"+strings.Repeat("a", 32)
		config.Status.Boot.ServedConfiguration.Name, config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		infra += "status: {configuration: {name: " + handedOut + "}}\n---\n" + clitest.Config(runs, "none", clitest.Motd("old")) + "---\n" + clitest.Config(handedOut, "none", clitest.Motd("new"))
		bmh.Spec.Online, bmh.Status.PoweredOn, bmh.Status.OperationalStatus = true, true, bmov1alpha1.OperationalStatusOK
		bmh.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		components := &bmov1alpha1.HostFirmwareComponents{ObjectMeta: meta(bmh.Name)}
		components.Status.Conditions = []metav1.Condition{{Type: "ChangeDetected", Status: metav1.ConditionTrue}, {Type: "Valid", Status: metav1.ConditionTrue}}
		others = []client.Object{components, &bmov1alpha1.HostUpdatePolicy{ObjectMeta: meta(bmh.Name), Spec: bmov1alpha1.HostUpdatePolicySpec{FirmwareUpdates: bmov1alpha1.HostUpdatePolicyOnReboot}}}
		explained()
		Expect(answer.Reboot).To(Equal("yes: file /etc/motd; by Metal3, which applies pending firmware settings or updates"))
	})

	It("prints the error of a BareMetalHost, and the Secrets that Metal3 waits for without reporting it", func() {
		bmh.Status.ErrorType, bmh.Status.ErrorMessage, bmh.Status.ErrorCount = bmov1alpha1.ProvisioningError, "Image provisioning failed: no space", 3
		bmh.Spec.UserData = &corev1.SecretReference{Namespace: "edge", Name: config.Name}
		bmh.Spec.NetworkData = &corev1.SecretReference{Namespace: "edge", Name: "gone-networkdata"}
		Expect(explained()).To(ConsistOf(
			HavePrefix("BareMetalHost edge/rack1-u12 is provisioning and has a provisioning error: Image provisioning failed: no space. Metal3 tries again"),
			Equal("spec.networkData of BareMetalHost edge/rack1-u12 is Secret gone-networkdata, which does not exist: create the Secret, or remove spec.networkData"),
		))
		bmh.Status = bmov1alpha1.BareMetalHostStatus{Provisioning: bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateProvisioned}, ErrorCount: 3}
		Expect(explained()).To(BeEmpty(), "an installed host needs no Secrets, and what failed before does not matter")
	})

	It("names in one line the labels that rules of the pool give to new hosts and a Node lacks that was moved there, and how to set them", func() {
		bmh.Labels = map[string]string{"rack": "r7"}
		infra += "  node:\n    labelRules:\n" + newRule("example.com/rack", `host.labels["rack"]`, "") + newRule("example.com/host", "host.name", "") +
			newRule("example.com/row", `host.labels["row"]`, "") + newRule("example.com/site", `"dallas"`, "")
		node.Labels["example.com/site"] = "set-by-hand"
		Expect(explained()).To(ConsistOf("kubectl label node infra-x7k2m example.com/rack=r7 example.com/host=rack1-u12: " +
			"MachineConfigPool edge/infra spec.node.labelRules gives them to hosts that boot in the pool, and this Node does not have them"))
	})

	It("prints the error of a BareMetalHost in a file", func() {
		path := clitest.WriteFile("all.yaml", infra, clitest.Pool("infra-1", "worker"), `apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: infra-x7k2m, labels: {node-role.kubernetes.io/infra: ""}}
spec:
  clusterName: infra-1
  bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: PoolbootConfig, name: infra-x7k2m}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Metal3Machine, name: m3}
`, `apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: PoolbootConfig
metadata: {name: infra-x7k2m}
spec: {join: {type: Kubelet}}
`, `apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: rack1-u12}
spec: {consumerRef: {kind: Metal3Machine, name: m3}}
status:
  provisioning: {state: registering}
  operationalStatus: error
  errorType: registration error
  errorMessage: The BMC secret edge/rack1-u12-bmc does not exist
`)
		r := runPoolboot("explain", "machine", "infra-x7k2m", "-f", path)
		Expect(strings.Join(clitest.Rows(r.Out), " ")).To(ContainSubstring("rack1-u12 is registering and has a registration error: The BMC secret edge/rack1-u12-bmc does not exist. Metal3 tries again"), r.ErrOut)
	})

	It("prints the error of a BareMetalHost without a Machine that is not being provisioned", func() {
		free := &bmov1alpha1.BareMetalHost{ObjectMeta: meta("rack1-u12")}
		free.Status.Provisioning.State = bmov1alpha1.StateAvailable
		free.Status.ErrorType, free.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "BMC unreachable"
		config.OwnerReferences = nil
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "rack1-u12", BareMetalHostName: "rack1-u12"}
		config.Status.NodeRef.Name = "rack1-u12"
		to := clitest.NewFakeConnection([]string{infra, clitest.Pool("infra-1", "worker")}, config, free)
		to.Own = clitest.NewFakeClientBuilder().Build()
		r := clitest.RunOn(to, New, "explain", "node", "rack1-u12")
		Expect(r.Out).To(ContainSubstring("BareMetalHost edge/rack1-u12 is available and has a power management error: BMC unreachable. Metal3 tries again"), r.ErrOut)
	})

	It("never advises to remove user data, because Metal3 would install the host without a configuration", func() {
		bmh.Spec.UserData = &corev1.SecretReference{Name: "gone"}
		Expect(explained()).To(ConsistOf("spec.userData of BareMetalHost edge/rack1-u12 is Secret gone, which does not exist: set it to Secret " + config.Name))
	})

	DescribeTable("prints which labels Metal3's label sync overwrites for ever, and what to change",
		func(prefixes string, hostLabels map[string]string, onNode string, todo ...any) {
			infra += "  node: {labels: {example.com/tier: infra}}\n"
			metal3Cluster.SetAnnotations(map[string]string{host.LabelSyncAnnotation: prefixes})
			bmh.Labels = hostLabels
			if onNode != "" {
				node.Labels["example.com/tier"] = onNode
			}
			Expect(explained()).To(ConsistOf(todo...))
		},
		Entry("that the host does not have", "other.example.com, example.com", nil, "", And(
			HavePrefix("MachineConfigPool edge/infra spec.node.labels declares example.com/tier=infra, and every minute Metal3 removes the label from the Node, because BareMetalHost edge/rack1-u12 does not have it"),
			ContainSubstring("annotation metal3.io/metal3-label-sync-prefixes of Metal3Cluster edge/m3c has its prefix example.com"),
			HaveSuffix("or: kubectl -n edge label baremetalhost rack1-u12 example.com/tier=infra --overwrite"))),
		Entry("that the host does not have, while the Node has it", "example.com", nil, "infra", ContainSubstring("every minute Metal3 removes the label")),
		Entry("that the host has with another value", "example.com", map[string]string{"example.com/tier": "gold"}, "gold",
			And(ContainSubstring(`every minute Metal3 sets it to "gold"`), Not(ContainSubstring("kubectl label node")))),
		Entry("but not one with the same value", "example.com", map[string]string{"example.com/tier": "infra"}, "infra"),
		Entry("but not one of another prefix", "com, sub.example.com", nil, "infra"),
		Entry("also the role of a pool", "example.com,node-role.kubernetes.io", map[string]string{"example.com/tier": "infra"}, "infra",
			ContainSubstring("declares node-role.kubernetes.io/infra=, and every minute Metal3 removes")),
	)
})
