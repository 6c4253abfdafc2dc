package adopt

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/schema"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// adopting returns the PoolbootConfig that adopts the Node edge-7.
func adopting(change func(*bootstrapv1.PoolbootConfig)) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Namespace: "metal", Labels: map[string]string{clusterv1.ClusterNameLabel: "site"}}}
	config.Spec.PoolRole = "infra"
	config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionPreview}
	change(config)
	return config
}

func unchanged(*bootstrapv1.PoolbootConfig) {}

var _ = Describe("adopt", func() {
	command := func(more ...string) []string {
		return append([]string{"adopt", "edge-7", "--cluster", "site", "--pool", "infra", "-n", "metal"}, more...)
	}
	parse := func(printed string) (configs []bootstrapv1.PoolbootConfig) {
		GinkgoHelper()
		for document := range strings.SplitSeq(printed, "\n---\n") {
			var config bootstrapv1.PoolbootConfig
			Expect(yaml.UnmarshalStrict([]byte(document), &config)).To(Succeed())
			config.TypeMeta = metav1.TypeMeta{}
			configs = append(configs, config)
		}
		return configs
	}

	It("prints a PoolbootConfig for each Node, with which the host stays as it was found", func() {
		printed := parse(clitest.ExpectSuccess(clitest.Run("", New, command("node/edge-8.example.com")...)))
		second := adopting(func(config *bootstrapv1.PoolbootConfig) {
			config.Name, config.Spec.Host.NodeName = "edge-8.example.com", "edge-8.example.com"
		})
		Expect(printed).To(Equal([]bootstrapv1.PoolbootConfig{*adopting(unchanged), *second}))
	})

	It("has the host follow its pool at once only if asked", func() {
		printed := parse(clitest.ExpectSuccess(clitest.Run("", New, command("--follow")...)))
		Expect(printed[0].Spec.Host.Adoption).To(Equal(bootstrapv1.AdoptionFollow))
	})

	DescribeTable("refuses what the API server would refuse, and names the argument", func(why string, args ...string) {
		clitest.ExpectError(clitest.Run("", New, append([]string{"adopt"}, args...)...), 1, why)
	},
		Entry("no Node", "name one or more Nodes", "--cluster", "site", "--pool", "infra"),
		Entry("an invalid Node", `the Node "Edge_7": `, "Edge_7", "--cluster", "site", "--pool", "infra"),
		Entry("an invalid role", "--pool (spec.poolRole): ", "edge-7", "--cluster", "site", "--pool", "In/fra"),
		Entry("OpenShift's role of the control plane", "--pool (spec.poolRole): Invalid value: \"master\": the role of the control plane's pool is control-plane", "edge-7", "--cluster", "site", "--pool", "master"),
		Entry("an invalid Cluster", "--cluster (metadata.labels): ", "edge-7", "--cluster", "a b", "--pool", "infra"),
	)

	DescribeTable("warns of what would hold an adoption back when it can read the cluster", func(warning string, change func(*bootstrapv1.PoolbootConfig), more ...string) {
		pool := clitest.Pool("site", "infra")
		if strings.Contains(warning, "MachineConfigPool") {
			pool = clitest.Pool("site", "gpu")
		}
		r := clitest.RunOn(clitest.NewFakeConnection([]string{strings.Replace(pool, "metadata:\n", "metadata:\n  namespace: metal\n", 1)}, adopting(change)), New, command(more...)...)
		Expect(r.Code).To(BeZero())
		Expect(parse(r.Out)).To(HaveLen(1))
		if warning == "" {
			Expect(r.ErrOut).To(BeEmpty())
		} else {
			Expect(r.ErrOut).To(And(HavePrefix("warning: "), ContainSubstring(warning)))
		}
	},
		Entry("not when the Node is adopted already", "", unchanged),
		Entry("no such pool", "no MachineConfigPool", unchanged),
		Entry("the PoolbootConfig has another host", "PoolbootConfig edge-7 exists and adopts the Node edge-8", func(config *bootstrapv1.PoolbootConfig) { config.Spec.Host.NodeName = "edge-8" }),
		Entry("the Node is adopted by another name", "PoolbootConfig md-1 adopts the Node edge-7 already: change that one", func(config *bootstrapv1.PoolbootConfig) { config.Name = "md-1" }),
		Entry("not when another PoolbootConfig adopts another Node", "", func(config *bootstrapv1.PoolbootConfig) { config.Name, config.Spec.Host.NodeName = "md-1", "edge-8" }),
		Entry("the PoolbootConfig is that of a Machine", "PoolbootConfig edge-7 exists and is that of a host that Poolboot boots", func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Host = bootstrapv1.HostWithoutMachine{}
		}),
		Entry("the PoolbootConfig belongs to another Cluster", "PoolbootConfig edge-7 exists and belongs to the Cluster other", func(config *bootstrapv1.PoolbootConfig) {
			config.Labels[clusterv1.ClusterNameLabel] = "other"
		}),
		Entry("the host follows its pool", "the host of Node edge-7 follows its pool, and returns to what it was: set --follow to keep it in the pool", func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Host.Adoption = bootstrapv1.AdoptionFollow
		}),
		Entry("not when the host follows its pool and --follow is set", "", func(config *bootstrapv1.PoolbootConfig) { config.Spec.Host.Adoption = bootstrapv1.AdoptionFollow }, "--follow"),
	)

	DescribeTable("warns of a Node of the control plane in another pool, and of another Node in its pool", func(role, label, warning string) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Labels: map[string]string{label: ""}}}
		to := clitest.NewFakeConnection([]string{strings.Replace(clitest.Pool("site", role), "metadata:\n", "metadata:\n  namespace: metal\n", 1)})
		to.Own = clitest.NewFakeClientBuilder(node).Build()
		r := clitest.RunOn(to, New, command("--pool", role)...)
		Expect(r.Code).To(BeZero())
		Expect(parse(r.Out)[0].Spec.PoolRole).To(Equal(role))
		Expect(r.ErrOut).To(Equal(warning))
	},
		Entry(nil, "control-plane", "node-role.kubernetes.io/control-plane", ""),
		Entry(nil, "control-plane", "node-role.kubernetes.io/master", ""),
		Entry(nil, "infra", "node-role.kubernetes.io/infra", ""),
		Entry(nil, "infra", "node-role.kubernetes.io/control-plane", "warning: Node edge-7 is one of the control plane, which can only be in the pool control-plane: set --pool control-plane\n"),
		Entry(nil, "control-plane", "node-role.kubernetes.io/infra", "warning: Node edge-7 is not one of the control plane: set --pool to another pool\n"),
	)

	It("warns of those of several Nodes that are none of the control plane, and of those that are adopted", func() {
		adopted := adopting(func(config *bootstrapv1.PoolbootConfig) {
			config.Name, config.Spec.PoolRole, config.Spec.Host.NodeName = "site-x7k2p", poolv1.RoleControlPlane, "cp-1"
		})
		to := clitest.NewFakeConnection([]string{strings.Replace(clitest.Pool("site", poolv1.RoleControlPlane), "metadata:\n", "metadata:\n  namespace: metal\n", 1)}, adopted)
		to.Own = clitest.NewFakeClientBuilder(
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1", Labels: map[string]string{poolv1.NodeRoleLabelPrefix + "control-plane": ""}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Labels: map[string]string{poolv1.NodeRoleLabelPrefix + "worker": ""}}}).Build()
		r := clitest.RunOn(to, New, command("cp-1", "--pool", poolv1.RoleControlPlane)...)
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(Equal("warning: Node edge-7 is not one of the control plane: set --pool to another pool\n" +
			"warning: PoolbootConfig site-x7k2p adopts the Node cp-1 already: change that one\n"))
	})

	It("warns of a Node that does not exist, and prints its PoolbootConfig, because it can join later", func() {
		to := clitest.NewFakeConnection([]string{strings.Replace(clitest.Pool("site", "infra"), "metadata:\n", "metadata:\n  namespace: metal\n", 1)})
		to.Own = clitest.NewFakeClientBuilder().Build()
		r := clitest.RunOn(to, New, command("--pool", "infra")...)
		Expect(parse(r.Out)).To(HaveLen(1))
		Expect(r.ErrOut).To(Equal("warning: Node edge-7 does not exist in Cluster site, and is adopted when it joins: if it is not to join, correct its name\n"))
		Expect(r.Code).To(BeZero())
	})

	It("prints what the documentation shows", func() {
		var shown []string
		for _, b := range clitest.ReadBlocks(sourcetree.Path("docs", "adopt.md")) {
			if b.Language == "yaml" {
				shown = append(shown, b.Text)
			}
		}
		Expect(shown).To(HaveLen(3))
		Expect(shown[0]).To(MatchYAML(clitest.ExpectSuccess(clitest.Run("", New, command()...))))
		for i, field := range map[int][2]string{1: {"adoption", "Follow"}, 2: {"poolRole", "control-plane"}} {
			var p map[string]any
			Expect(yaml.Unmarshal([]byte(shown[i]), &p)).To(Succeed())
			Expect(schema.Validate(poolv1.GroupVersion.WithKind("MachineConfigPool"), p)).To(BeEmpty())
			Expect(p["spec"]).To(HaveKeyWithValue(field[0], field[1]))
		}
	})
})
