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
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

const (
	aHost = `apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: rack1-u12, labels: {rack: r7}}
spec: {aFieldOfTomorrow: true}
status: {hardware: {systemVendor: {manufacturer: Old}, aFieldOfTomorrow: true}}
`
	itsHardware = `apiVersion: metal3.io/v1alpha1
kind: HardwareData
metadata: {name: rack1-u12}
spec: {hardware: {systemVendor: {manufacturer: Dell, serialNumber: "a\e[31m\nb"}}}
`
	itsMachine = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: infra-x7k2p}
`
	itsCluster = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: edge, labels: {site: dallas}}
`
)

// newRule is one rule of labelRules in YAML's flow style.
func newRule(key, expression, more string) string {
	return "    - {key: " + key + ", valueExpression: '" + expression + "'" + more + "}\n"
}

var _ = Describe("explain host", func() {
	infra := clitest.Pool("edge", "infra") + "  node:\n    labelRules:\n" + newRule("rack", `host.labels["rack"]`, "") + newRule("vendor", "host.hardware.vendor", "")
	template := `apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: PoolbootConfigTemplate
metadata: {name: infra}
spec:
  template:
    spec:
      join: {kubelet: {}}
      node:
        labelRules:
        - {key: site, valueExpression: 'cluster.labels["site"] + "." + machine.name'}
`
	outcomes := func(out string) map[string]string {
		GinkgoHelper()
		var answer hostReport
		Expect(yaml.UnmarshalStrict([]byte(out), &answer)).To(Succeed())
		given := map[string]string{}
		for _, r := range answer.Rules {
			given[r.Key] = strings.TrimSpace(string(r.Outcome) + " " + r.Value)
		}
		return given
	}

	It("evaluates all rules in files for a host in files", func() {
		path := clitest.WriteFile("all.yaml", aHost, itsHardware, itsMachine, itsCluster, infra, template)
		out := clitest.ExpectSuccess(runPoolboot("explain", "host", "rack1-u12", "-f", path, "-o", "yaml"))
		Expect(outcomes(out)).To(Equal(map[string]string{"rack": "Set r7", "vendor": "Set Dell", "site": "Set dallas.infra-x7k2p"}))
		var answer hostReport
		Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(runPoolboot("explain", "host", "rack1-u12", path, "-o", "json"))), &answer)).To(Succeed())
		Expect(answer).To(And(HaveField("Hardware", "HardwareData"), HaveField("Machine", "infra-x7k2p"), HaveField("Cluster", "edge")))
		Expect(answer.Rules[0].Facts).To(ConsistOf(nodelabels.Fact{Path: `host.labels["rack"]`, Value: `"r7"`}))
		Expect(answer.Rules[2].From).To(Equal("PoolbootConfigTemplate infra spec.template.spec.node.labelRules"))
	})

	It("reads the hardware from the host's status without HardwareData, and the rules of one pool", func() {
		gpu := clitest.Pool("edge", "gpu") + "  node:\n    labelRules:\n" + newRule("vendor", "host.hardware.vendor", "") + newRule("door", "host.labels.door", "")
		path := clitest.WriteFile("all.yaml", aHost, infra, gpu)
		Expect(outcomes(clitest.ExpectSuccess(runPoolboot("explain", "host", "rack1-u12", "-f", path, "--pool", "gpu", "-o", "yaml")))).
			To(Equal(map[string]string{"vendor": "Set Old", "door": "Skipped"}))
	})

	DescribeTable("exits with 2 and the reason when a rule would block the host",
		func(blocked, outcome, why string) {
			r := runPoolboot("explain", "host", "rack1-u12", "-f", clitest.WriteFile("all.yaml", aHost, itsHardware, clitest.Pool("edge", "infra")+"  node:\n    labelRules:\n"+blocked))
			Expect(r.Code).To(Equal(2))
			Expect(r.ErrOut).To(Equal("error: host rack1-u12 would get no configuration: blocking rules: 1\n"))
			Expect(r.Out).To(And(ContainSubstring(outcome), ContainSubstring(why)))
			Expect(r.Out).NotTo(ContainSubstring("\x1b"), "nothing may reach the terminal")
		},
		Entry("a missing fact", newRule("zone", `host.labels["zone"]`, ", onMissing: Block"), "Blocked", `host.labels["zone"] is missing`),
		Entry("an invalid label value", newRule("serial", `host.hardware.serial`, ""), "Invalid", `"a\x1b[31m\nb" is not a valid label value`),
		Entry("an expression with an error", newRule("serial", `host.hardware.seriol`, ""), "Invalid", `valueExpression:1:14: undefined field 'seriol'`),
	)

	DescribeTable("refuses an invalid command line",
		func(why string, args ...string) {
			path := clitest.WriteFile("all.yaml", aHost, infra)
			clitest.ExpectError(runPoolboot(append([]string{"explain", "host"}, strings.Split(strings.ReplaceAll(strings.Join(args, " "), "FILE", path), " ")...)...), 1, why)
		},
		Entry("another host", `the files contain no BareMetalHost "rack2"`, "rack2", "-f", "FILE"),
		Entry("another pool", `no MachineConfigPool of role "gpu"`, "rack1-u12", "-f", "FILE", "--pool", "gpu"),
		Entry("an unknown output", "--output xml is not known", "rack1-u12", "-f", "FILE", "-o", "xml"),
		Entry("no host", "name one BareMetalHost: see kubectl get baremetalhosts", "-f", "FILE"),
		Entry("a file that does not exist", "nowhere.yaml: no such file", "rack1-u12", "-f", "nowhere.yaml"),
	)

	It("refuses a field that Poolboot's kinds don't have", func() {
		clitest.ExpectError(runPoolboot("explain", "host", "rack1-u12", "-f", clitest.WriteFile("all.yaml", aHost, strings.Replace(template, "join:", "nodeLabelRule: []\n      join:", 1))), 1, "nodeLabelRule")
	})

	It("says if no rule applies, instead of an empty table", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("explain", "host", "rack1-u12", "-f", clitest.WriteFile("all.yaml", aHost)))).To(
			HaveSuffix("\nNo label rule applies: no pool or PoolbootConfig of this host has spec.node.labelRules\n"))
	})

	Describe("of a host in the management cluster", func() {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "edge", Name: name} }
		rules := func(expression string) []nodev1.NodeLabelRule {
			return []nodev1.NodeLabelRule{{Key: "it", ValueExpression: expression}}
		}
		explaining := func(objects []client.Object, args ...string) clitest.Result {
			to := &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder().WithObjects(objects...).Build()}
			return clitest.RunOn(to, New, append([]string{"explain", "host", "rack1-u12", "-o", "yaml"}, args...)...)
		}
		var objects []client.Object
		var host *bmov1alpha1.BareMetalHost
		BeforeEach(func() {
			host = &bmov1alpha1.BareMetalHost{ObjectMeta: meta("rack1-u12"), Spec: bmov1alpha1.BareMetalHostSpec{ConsumerRef: &corev1.ObjectReference{
				APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3Machine", Namespace: "edge", Name: "m3m"}}}
			metal3Machine := &unstructured.Unstructured{}
			metal3Machine.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
			metal3Machine.SetKind("Metal3Machine")
			metal3Machine.SetNamespace("edge")
			metal3Machine.SetName("m3m")
			metal3Machine.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "infra-x7k2p", UID: "1"}})
			config := &bootstrapv1.PoolbootConfig{ObjectMeta: meta("infra-x7k2p"), Status: bootstrapv1.PoolbootConfigStatus{
				PoolRole: "infra", NodeRef: bootstrapv1.NodeReference{Name: "infra-x7k2p"}}}
			config.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "of-config", ValueExpression: `machine.name`}}
			infra := &poolv1.MachineConfigPool{ObjectMeta: meta("infra"), Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: "infra",
				Node: nodev1.NodeSettings{LabelRules: rules(`host.hardware.vendor + "." + cluster.labels["site"]`)}}}
			gpu := &poolv1.MachineConfigPool{ObjectMeta: meta("gpu"), Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: "gpu",
				Node: nodev1.NodeSettings{LabelRules: rules(`"gpu." + host.name`)}}}
			cluster := &clusterv1.Cluster{ObjectMeta: meta("infra-1")}
			cluster.Labels = map[string]string{"site": "dallas"}
			objects = []client.Object{host, metal3Machine, config, infra, gpu, cluster,
				&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
					Name: "metal3machines.infrastructure.cluster.x-k8s.io", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}},
				&bmov1alpha1.HardwareData{ObjectMeta: meta("rack1-u12"), Spec: bmov1alpha1.HardwareDataSpec{HardwareDetails: &bmov1alpha1.HardwareDetails{
					SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "Dell"}}}},
				&clusterv1.Machine{ObjectMeta: meta("infra-x7k2p"), Spec: clusterv1.MachineSpec{ClusterName: "infra-1",
					Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{Kind: "PoolbootConfig", Name: "infra-x7k2p"}}}}}
		})

		It("uses the rules of its Machine's pool and PoolbootConfig", func() {
			Expect(outcomes(clitest.ExpectSuccess(explaining(objects)))).To(Equal(map[string]string{"it": "Set Dell.dallas", "of-config": "Set infra-x7k2p"}))
		})
		It("uses the rules of another pool with --pool", func() {
			Expect(outcomes(clitest.ExpectSuccess(explaining(objects, "--pool", "gpu")))).To(Equal(map[string]string{"it": "Set gpu.rack1-u12", "of-config": "Set infra-x7k2p"}))
		})
		It("uses the rules of a pool while the host serves no Machine", func() {
			host.Spec.ConsumerRef = nil
			Expect(outcomes(clitest.ExpectSuccess(explaining(objects, "--pool", "infra")))).To(Equal(map[string]string{"it": "Set Dell.dallas"}))
		})
		It("reports a host that does not exist", func() {
			clitest.ExpectError(explaining(objects[1:]), 1, "BareMetalHost edge/rack1-u12", "not found: correct the name, or set --namespace")
		})
	})
})
