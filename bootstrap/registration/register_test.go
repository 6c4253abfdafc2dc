package registration_test

import (
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

const hostUID = "3f2c9a54-5b1e-4d0c-9e51-6f9c0a2b7d11"

func poolOf(role string) poolv1.MachineConfigPool {
	return poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge-" + role},
		Spec:       poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: role},
	}
}

// infraInput is the input for a Machine that boots into the pool infra and has no labels of its own.
func infraInput() *registration.Sources {
	in := &registration.Sources{
		NodeName:       "infra-x7k2p",
		ProviderID:     "metal3://metal/rack1-u12/infra-m3m",
		HostUID:        hostUID,
		Pool:           poolOf("infra"),
		Machine:        &clusterv1.Machine{},
		Config:         &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "infra-boot"}},
		RenderedConfig: "rendered-edge-infra-0123456789abcdef0123456789abcdef",
	}
	in.Pools = []poolv1.MachineConfigPool{poolOf("worker"), in.Pool}
	return in
}

var _ = Describe("The registration of a Node", func() {
	var in *registration.Sources

	BeforeEach(func() { in = infraInput() })

	It("has the labels of its pool, its role and its host, and no others", func() {
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Labels).To(Equal(map[string]string{
			"node-role.kubernetes.io/infra": "",
			"poolboot.io/pool":              "infra",
			"metal3.io/uuid":                hostUID,
			"kubernetes.io/hostname":        "infra-x7k2p",
			"kubernetes.io/os":              "linux",
		}))
	})

	DescribeTable("has the architecture from the inspection of the host as Kubernetes names it, and never in the kubelet flags",
		func(found string, labeled gomegatypes.GomegaMatcher) {
			in.CPUArch, in.CPUArchSource = found, "HardwareData spec.hardware.cpu.arch"
			got, err := registration.Register(*in)
			Expect(err).NotTo(HaveOccurred())
			Expect(got.Labels).To(labeled)
			Expect(got.KubeletArgs()).NotTo(ContainElement(Or(ContainSubstring("kubernetes.io/arch"), ContainSubstring("kubernetes.io/os"), ContainSubstring("kubernetes.io/hostname"))))
		},
		Entry("x86", "x86_64", HaveKeyWithValue("kubernetes.io/arch", "amd64")),
		Entry("Arm", "aarch64", HaveKeyWithValue("kubernetes.io/arch", "arm64")),
		Entry("an unknown architecture", "vax", Not(HaveKey("kubernetes.io/arch"))),
		Entry("no architecture", "", Not(HaveKey("kubernetes.io/arch"))),
	)

	It("names the sources of the labels that every kubelet sets", func() {
		in.CPUArch, in.CPUArchSource = "aarch64", "HardwareData spec.hardware.cpu.arch"
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.LabelSources).To(And(
			HaveKeyWithValue("kubernetes.io/hostname", []string{"Node metadata.name"}),
			HaveKeyWithValue("kubernetes.io/os", []string{"Poolboot"}),
			HaveKeyWithValue("kubernetes.io/arch", []string{"HardwareData spec.hardware.cpu.arch"})))
	})

	It("has the name, the providerID and the annotations with its PoolbootConfig and rendered config", func() {
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Name).To(Equal("infra-x7k2p"))
		Expect(got.ProviderID).To(Equal("metal3://metal/rack1-u12/infra-m3m"))
		Expect(got.Annotations).To(Equal(map[string]string{
			"poolboot.io/poolbootconfig": "metal/infra-boot",
			"poolboot.io/current-config": in.RenderedConfig,
			"poolboot.io/desired-config": in.RenderedConfig,
		}))
	})

	It("has the labels of the pool, the Machine and the PoolbootConfig too", func() {
		in.Pool.Spec.Node.Labels = map[string]string{"example.com/tier": "edge"}
		in.Config.Spec.Node.Labels = map[string]string{"example.com/rack": "r1"}
		in.Machine.Labels = map[string]string{
			"node-role.kubernetes.io/infra":             "", // two sources can set the same value
			"node-role.kubernetes.io/worker":            "",
			"node-restriction.kubernetes.io/tenant":     "a",
			"sub.node-restriction.kubernetes.io/tenant": "b",
			"node.cluster.x-k8s.io/zone":                "z1",
			"sub.node.cluster.x-k8s.io/zone":            "z2",
			"example.org/site":                          "s1",
			"cluster.x-k8s.io/cluster-name":             "edge",
			"not-node-role.kubernetes.io/x":             "",
			"sub.node-role.kubernetes.io/x":             "",
		}
		in.SyncedLabels = []*regexp.Regexp{regexp.MustCompile(`^example\.org/`)}
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Labels).To(Equal(map[string]string{
			"node-role.kubernetes.io/infra":             "",
			"node-role.kubernetes.io/worker":            "",
			"poolboot.io/pool":                          "infra",
			"metal3.io/uuid":                            hostUID,
			"example.com/tier":                          "edge",
			"example.com/rack":                          "r1",
			"node-restriction.kubernetes.io/tenant":     "a",
			"sub.node-restriction.kubernetes.io/tenant": "b",
			"node.cluster.x-k8s.io/zone":                "z1",
			"sub.node.cluster.x-k8s.io/zone":            "z2",
			"example.org/site":                          "s1",
			"kubernetes.io/hostname":                    "infra-x7k2p",
			"kubernetes.io/os":                          "linux",
		}))
	})

	DescribeTable("refuses a name that identifies something other than a Node", func(name string) {
		in.NodeName, in.Cluster = name, access.Cluster{Endpoints: []string{"api.example.com"}}
		_, err := registration.Register(*in)
		Expect(err).To(BeAssignableToTypeOf(&access.NameError{}))
	},
		Entry("a Machine called kubernetes", "kubernetes"),
		Entry("the API server's Service", "kubernetes.default.svc"),
		Entry("the host itself", "localhost"),
		Entry("the control plane endpoint", "api.example.com"),
		Entry("an IP address", "192.0.2.1"),
	)

	It("has the derived labels, and the kubelet flags have those that a kubelet can set", func() {
		in.DerivedLabels = []registration.DerivedLabel{
			{Key: "topology.kubernetes.io/zone", Value: "dallas-b", Source: "MachineConfigPool metal/edge-infra spec.node.labelRules"},
			{Key: "node-restriction.kubernetes.io/rack", Value: "r7", Source: "PoolbootConfig metal/infra-boot spec.node.labelRules"},
		}
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Labels).To(And(HaveKeyWithValue("topology.kubernetes.io/zone", "dallas-b"), HaveKeyWithValue("node-restriction.kubernetes.io/rack", "r7")))
		Expect(got.KubeletArgs()).To(ContainElement(And(HavePrefix("--node-labels="), ContainSubstring("topology.kubernetes.io/zone=dallas-b"),
			Not(ContainSubstring("node-restriction")))))
	})

	It("has no providerID and no label metal3.io/uuid while no host is known", func() {
		in.HostUID, in.ProviderID = "", ""
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Labels).NotTo(HaveKey("metal3.io/uuid"))
		Expect(got.KubeletArgs()).NotTo(ContainElement(HavePrefix("--provider-id")))
	})

	It("has the taints of the pool and the PoolbootConfig, and the two that Poolboot and Cluster API remove later", func() {
		in.Pool.Spec.Node.Taints = []nodev1.Taint{
			{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule},
			{Key: "infra", Value: "now", Effect: corev1.TaintEffectNoExecute},
		}
		in.Config.Spec.Node.Taints = []nodev1.Taint{
			{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule},
			{Key: "burn-in", Effect: corev1.TaintEffectPreferNoSchedule},
		}
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Taints).To(Equal([]corev1.Taint{
			{Key: "burn-in", Effect: corev1.TaintEffectPreferNoSchedule},
			{Key: "infra", Value: "now", Effect: corev1.TaintEffectNoExecute},
			{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule},
			{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
			{Key: "poolboot.io/unassigned", Effect: corev1.TaintEffectNoSchedule},
		}))
		Expect(got.Annotations).To(HaveKeyWithValue("poolboot.io/applied-taints", registration.AppliedTaints(nodev1.CoreTaints(in.Pool.Spec.Node.Taints))))
	})

	It("returns a Node for pre-registration that is not Ready", func() {
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		made := got.Node()
		Expect(made.Name).To(Equal(got.Name))
		Expect(made.Labels).To(Equal(got.Labels))
		Expect(made.Annotations).To(Equal(got.Annotations))
		Expect(made.Spec).To(Equal(corev1.NodeSpec{ProviderID: got.ProviderID, Taints: got.Taints}))
		Expect(made.Status.Conditions).To(ConsistOf(SatisfyAll(
			HaveField("Type", corev1.NodeReady),
			HaveField("Status", corev1.ConditionFalse),
			HaveField("Reason", "PoolbootWaitingForKubelet"))))

		made.Labels["written-by"] = "a client"
		made.Spec.Taints[0].Key = "written-by-a-client"
		Expect(got.Labels).NotTo(HaveKey("written-by"))
		Expect(got.Taints).NotTo(ContainElement(HaveField("Key", "written-by-a-client")))
	})

	DescribeTable("is refused when two sources disagree, with an error that names both,",
		func(change func(), key, one, other string) {
			change()
			_, err := registration.Register(*in)
			Expect(err).To(BeAssignableToTypeOf(&registration.LabelConflictError{}))
			Expect(err).To(HaveField("Key", key))
			Expect(err).To(HaveField("Sources", ConsistOf(one, other)))
			Expect(err).To(MatchError(SatisfyAll(ContainSubstring(key), ContainSubstring(one), ContainSubstring(other))))
		},
		Entry("the pool and the PoolbootConfig",
			func() {
				in.Pool.Spec.Node.Labels = map[string]string{"example.com/tier": "edge"}
				in.Config.Spec.Node.Labels = map[string]string{"example.com/tier": "core"}
			}, "example.com/tier",
			`MachineConfigPool metal/edge-infra spec.node.labels ("edge")`,
			`PoolbootConfig metal/infra-boot spec.node.labels ("core")`),
		Entry("the Machine and the role of the pool",
			func() {
				in.Machine.Labels = map[string]string{"poolboot.io/pool": "worker"}
				in.SyncedLabels = []*regexp.Regexp{regexp.MustCompile(`^poolboot\.io/`)}
			},
			"poolboot.io/pool",
			`MachineConfigPool metal/edge-infra spec.poolRole ("infra")`, `Machine metadata.labels ("worker")`),
		Entry("the PoolbootConfig and the UID of the host",
			func() { in.Config.Spec.Node.Labels = map[string]string{"metal3.io/uuid": "another"} },
			"metal3.io/uuid",
			`BareMetalHost metadata.uid ("`+hostUID+`")`, `PoolbootConfig metal/infra-boot spec.node.labels ("another")`),
		Entry("a derived label and the PoolbootConfig",
			func() {
				in.DerivedLabels = []registration.DerivedLabel{{Key: "example.com/rack", Value: "r7", Source: "MachineConfigPool metal/edge-infra spec.node.labelRules"}}
				in.Config.Spec.Node.Labels = map[string]string{"example.com/rack": "r8"}
			}, "example.com/rack",
			`PoolbootConfig metal/infra-boot spec.node.labels ("r8")`, `MachineConfigPool metal/edge-infra spec.node.labelRules ("r7")`),
		Entry("two derived labels",
			func() {
				in.DerivedLabels = []registration.DerivedLabel{{Key: "example.com/rack", Value: "r7", Source: "MachineConfigPool metal/edge-infra spec.node.labelRules"},
					{Key: "example.com/rack", Value: "r8", Source: "PoolbootConfig metal/infra-boot spec.node.labelRules"}}
			}, "example.com/rack",
			`MachineConfigPool metal/edge-infra spec.node.labelRules ("r7")`, `PoolbootConfig metal/infra-boot spec.node.labelRules ("r8")`),
		Entry("the pool and the inspected architecture of the host",
			func() {
				in.Pool.Spec.Node.Labels = map[string]string{"kubernetes.io/arch": "arm64"}
				in.CPUArch, in.CPUArchSource = "x86_64", "HardwareData spec.hardware.cpu.arch"
			}, "kubernetes.io/arch",
			`MachineConfigPool metal/edge-infra spec.node.labels ("arm64")`, `HardwareData spec.hardware.cpu.arch ("amd64")`),
		Entry("the PoolbootConfig and the name of the Node",
			func() { in.Config.Spec.Node.Labels = map[string]string{"kubernetes.io/hostname": "another"} },
			"kubernetes.io/hostname",
			`PoolbootConfig metal/infra-boot spec.node.labels ("another")`, `Node metadata.name ("infra-x7k2p")`),
		Entry("taints of the pool and the PoolbootConfig",
			func() {
				in.Pool.Spec.Node.Taints = []nodev1.Taint{{Key: "infra", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
				in.Config.Spec.Node.Taints = []nodev1.Taint{{Key: "infra", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
			}, "infra:NoSchedule",
			`MachineConfigPool metal/edge-infra spec.node.taints ("a")`, `PoolbootConfig metal/infra-boot spec.node.taints ("b")`),
		Entry("a taint of the pool and Poolboot's own taint",
			func() {
				in.Pool.Spec.Node.Taints = []nodev1.Taint{
					{Key: poolv1.NodeUnassignedTaint, Value: "mine", Effect: corev1.TaintEffectNoSchedule}}
			}, "poolboot.io/unassigned:NoSchedule",
			`Poolboot ("")`, `MachineConfigPool metal/edge-infra spec.node.taints ("mine")`),
	)

	DescribeTable("is refused when its labels do not put the Node in the decided pool",
		func(change func(), why string) {
			change()
			_, err := registration.Register(*in)
			Expect(err).To(BeAssignableToTypeOf(&registration.OutsidePoolError{}))
			Expect(err).To(HaveField("Role", in.Pool.Spec.PoolRole))
			Expect(err).To(MatchError(ContainSubstring(why)))
		},
		Entry("a second custom pool matches too",
			func() {
				in.Pools = append(in.Pools, poolOf("gpu"))
				in.Machine.Labels = map[string]string{"node-role.kubernetes.io/gpu": ""}
			}, "gpu and infra"),
		Entry("a custom pool selects a Node of the worker pool",
			func() {
				in.Pool = poolOf("worker")
				in.Config.Spec.Node.Labels = map[string]string{"node-role.kubernetes.io/infra": ""}
			}, `the pool "infra" selects them`),
		Entry("another pool selects a derived label",
			func() {
				in.Pools = append(in.Pools, poolOf("gpu"))
				in.DerivedLabels = []registration.DerivedLabel{{Key: "node-role.kubernetes.io/gpu", Value: ""}}
			}, "gpu and infra"),
		Entry("a custom pool selects every host with an architecture",
			func() {
				arm := poolOf("arm")
				arm.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/arch": "arm64"}}
				in.Pool, in.Pools, in.CPUArch = in.Pools[0], append(in.Pools, arm), "aarch64"
			}, `the pool "arm" selects them`),
		Entry("they are the labels of a control plane node",
			func() { in.Machine.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} },
			"they are those of a control plane node"),
		Entry("the Machine has a label that the pool excludes",
			func() {
				in.Pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/infra": ""}, MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "node-role.kubernetes.io/worker", Operator: metav1.LabelSelectorOpDoesNotExist}}}
				in.Machine.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
			}, "spec.nodeSelector.matchExpressions[0] of the pool requires node-role.kubernetes.io/worker DoesNotExist, and node-role.kubernetes.io/worker= comes from Machine metadata.labels"),
		Entry("a derived label has a value that the pool excludes",
			func() {
				in.Pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/infra": ""}, MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "topology.kubernetes.io/zone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"z-b"}}}}
				in.DerivedLabels = []registration.DerivedLabel{{Key: "topology.kubernetes.io/zone", Value: "z-b", Source: "MachineConfigPool metal/edge-infra spec.node.labelRules"}}
			}, "requires topology.kubernetes.io/zone NotIn [z-b], and topology.kubernetes.io/zone=z-b comes from MachineConfigPool metal/edge-infra spec.node.labelRules"),
		Entry("the pool is not one of the pools of the cluster",
			func() { in.Pools = in.Pools[:1] }, "no pool selects them"),
	)

	DescribeTable("is refused when a value is not valid for a Node, with an error that names the field,",
		func(change func(), source, problem string) {
			change()
			_, err := registration.Register(*in)
			Expect(err).To(BeAssignableToTypeOf(&registration.InvalidError{}))
			Expect(err).To(HaveField("Source", source))
			Expect(err).To(MatchError(ContainSubstring(problem)))
		},
		Entry("a label key",
			func() { in.Config.Spec.Node.Labels = map[string]string{"no key": "x"} },
			"PoolbootConfig metal/infra-boot spec.node.labels", `label key "no key"`),
		Entry("a label value",
			func() { in.Pool.Spec.Node.Labels = map[string]string{"example.com/tier": "$(reboot)"} },
			"MachineConfigPool metal/edge-infra spec.node.labels", `example.com/tier: value "$(reboot)"`),
		Entry("a taint key",
			func() { in.Config.Spec.Node.Taints = []nodev1.Taint{{Effect: corev1.TaintEffectNoSchedule}} },
			"PoolbootConfig metal/infra-boot spec.node.taints", "key: "),
		Entry("a taint value",
			func() {
				in.Config.Spec.Node.Taints = []nodev1.Taint{{Key: "k", Value: "a b", Effect: corev1.TaintEffectNoSchedule}}
			},
			"PoolbootConfig metal/infra-boot spec.node.taints", "value: "),
		Entry("a taint effect",
			func() { in.Pool.Spec.Node.Taints = []nodev1.Taint{{Key: "k", Effect: "Never"}} },
			"MachineConfigPool metal/edge-infra spec.node.taints", "effect: must be NoSchedule"),
		Entry("a name with uppercase letters",
			func() { in.NodeName = "Infra" }, `Node name "Infra"`, "lowercase RFC 1123 subdomain"),
		Entry("a name that is too long for the label kubernetes.io/hostname",
			func() { in.NodeName = strings.Repeat("a", 64) },
			`Node name "`+strings.Repeat("a", 64)+`"`, "must be no more than 63"),
		Entry("a providerID that needs quotes in a systemd EnvironmentFile",
			func() { in.ProviderID = "metal3://metal/rack1 --register-node=false" },
			`providerID "metal3://metal/rack1 --register-node=false"`, "must match"),
	)

	It("is refused when the selector of the pool does not determine labels", func() {
		in.Pool.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "example.com/tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"edge"}}}}
		_, err := registration.Register(*in)
		Expect(err).To(BeAssignableToTypeOf(&pool.NotRegistrableError{}))
	})
})
