package explain

import (
	"encoding/json"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

var _ = Describe("explain machine and explain node", func() {
	var h *bootedHost
	BeforeEach(func() { h = newBootedHost() })

	DescribeTable("print the pool and the reason, and the source of every label and taint on the Node",
		func(args ...string) {
			answer, r := h.asked(true, append(args, "infra-x7k2m", "-o", "json")...)
			Expect(r.ErrOut).To(BeEmpty())
			Expect(r.Code).To(BeZero())
			Expect(answer.Pool).To(Equal("infra"))
			Expect(answer.Why).To(Equal("recorded for Node infra-x7k2m; MachineLabels: Machine infra-x7k2m has node-role.kubernetes.io/infra="))
			Expect(answer.Host).To(Equal("edge/rack1-u12"))
			Expect(sourcesOf(answer.Labels)).To(Equal(map[string]string{
				"node-role.kubernetes.io/infra=":      "Present MachineConfigPool edge/infra spec.nodeSelector, Machine metadata.labels",
				"poolboot.io/pool=infra":              "Present MachineConfigPool edge/infra spec.poolRole",
				"example.com/tier=infra":              "Present MachineConfigPool edge/infra spec.node.labels",
				"example.com/own=yes":                 "Present PoolbootConfig edge/infra-x7k2m-config spec.node.labels",
				"example.com/site=dallas":             "Present MachineConfigPool edge/infra spec.node.labelRules",
				"rack.node.cluster.x-k8s.io/id=r7":    "Present Machine metadata.labels",
				poolv1.NodeMetal3UUIDLabel + "=uid-1": "Present BareMetalHost metadata.uid",
				"kubernetes.io/os=linux":              "Present Poolboot",
				"kubernetes.io/hostname=infra-x7k2m":  "Present Node metadata.name",
				"beta.kubernetes.io/os=linux":         "Present kubelet, on the Node",
				"example.com/synced=yes":              `Present a controller (field manager "manager"), on the Node`,
			}))
			Expect(sourcesOf(answer.Taints)).To(Equal(map[string]string{
				"example.com/infra:NoSchedule":                       "Present MachineConfigPool edge/infra spec.node.taints",
				poolv1.NodeUnassignedTaint + ":NoSchedule":           "Removed Poolboot",
				clusterv1.NodeUninitializedTaint.Key + ":NoSchedule": "Removed Poolboot",
				"node.kubernetes.io/disk-pressure:NoSchedule":        "Present Kubernetes, by the Node's conditions",
			}))
		},
		Entry("of a Machine", "machine"), Entry("of a Node with a PoolbootConfig", "node"),
	)

	It("names the command for an object that is given as kubectl takes it, and for a pool", func() {
		for _, args := range [][]string{{"pool/infra", "-n", "metal"}, {"pool", "infra", "-n", "metal"}, {"MachineConfigPools", "infra"}} {
			clitest.ExpectError(runPoolboot(append([]string{"explain"}, args...)...), 1, "what is wrong with a pool is in kubectl poolboot rollout status infra")
		}
		clitest.ExpectError(runPoolboot("explain", "node/worker-1", "-n", "metal"), 1, "leave a space between kind and name: kubectl poolboot explain node worker-1")
		clitest.ExpectError(runPoolboot("explain", "hots"), 1, `unknown command "hots"`)
	})

	It("print that Poolboot set what was declared before, and that the Node does not say who set a taint", func() {
		h.node.ManagedFields[1].Manager = join.FieldManager
		h.node.ManagedFields[1].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:example.com/synced":{},"f:example.com/site":{}}}}`)
		h.node.Labels["example.com/site"] = "berlin"
		h.node.Spec.Taints = append(h.node.Spec.Taints, corev1.Taint{Key: "example.com/edge", Effect: corev1.TaintEffectNoSchedule})
		answer, _ := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Todo).To(ConsistOf(ContainSubstring(`"berlin" was set by Poolboot, as declared earlier, and Poolboot does not overwrite it`)))
		Expect(sourcesOf(answer.Labels)).To(HaveKeyWithValue("example.com/synced=yes", "Present Poolboot, as declared earlier, on the Node"))
		Expect(sourcesOf(answer.Taints)).To(HaveKeyWithValue("example.com/edge:NoSchedule", "Present Poolboot, as declared earlier, or another client, on the Node"))
	})

	It("print what is missing or differs, the client that set it, and what to do", func() {
		delete(h.node.Labels, "example.com/own")
		h.node.Labels["example.com/tier"] = "gold"
		h.node.Spec.Taints = nil
		answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(r.ErrOut).To(Equal("error: infra-x7k2m: 3 to do: see the output\n"))
		Expect(answer.Todo).To(ConsistOf(
			HavePrefix("kubectl label node infra-x7k2m example.com/own=yes: PoolbootConfig edge/infra-x7k2m-config spec.node.labels declares it, and the Node does not have it"),
			And(HavePrefix("kubectl label node infra-x7k2m example.com/tier=infra --overwrite"), ContainSubstring(`"gold" was set by kubelet, and Poolboot does not overwrite it`)),
			HavePrefix("kubectl taint node infra-x7k2m example.com/infra:NoSchedule"),
		))
		_, r = h.asked(true, "machine", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`example.com/tier=infra +Differs: "gold" +MachineConfigPool edge/infra spec.node.labels`))
	})

	It("print the taints of the Machine, those that replace taints of the pool, and those that Cluster API does not keep", func() {
		h.machine.Spec.Taints = []clusterv1.MachineTaint{
			{Key: "example.com/infra", Value: "db", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways},
			{Key: "example.com/burn-in", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
		}
		h.node.Spec.Taints = []corev1.Taint{{Key: "example.com/burn-in", Effect: corev1.TaintEffectNoSchedule}}
		answer, _ := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Todo).To(ConsistOf(
			HavePrefix("start Cluster API with --feature-gates=MachineTaintPropagation=true, or read its log: the Node does not have the taint example.com/infra=db:NoSchedule"),
			HavePrefix("the taint example.com/infra=db:NoSchedule of Machine edge/infra-x7k2m spec.taints replaces example.com/infra:NoSchedule of MachineConfigPool edge/infra spec.node.taints"),
		))
		Expect(answer.Taints).To(ContainElement(nodeProperty{Text: "example.com/burn-in:NoSchedule", From: []string{"Machine spec.taints"}, State: StatePresent}))
	})

	It("print that nobody removes the taint of a Machine while Cluster API runs without the feature gate for it", func() {
		h.machine.Spec.Taints = []clusterv1.MachineTaint{{Key: "example.com/db", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways}}
		h.node.Spec.Taints = append(h.node.Spec.Taints, corev1.Taint{Key: "example.com/db", Effect: corev1.TaintEffectNoSchedule})
		todo := func() []string {
			answer, _ := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
			return answer.Todo
		}
		Expect(todo()).To(BeEmpty(), "Cluster API has not seen the Node yet")
		h.node.Annotations[clusterv1.LabelsFromMachineAnnotation] = ""
		Expect(todo()).To(ConsistOf("start Cluster API with --feature-gates=MachineTaintPropagation=true, or remove the taint example.com/db:NoSchedule from the Machine and with " +
			"kubectl taint node infra-x7k2m example.com/db:NoSchedule-: without the feature gate, Cluster API does not remove it from the Node"))
		h.node.Annotations[clusterv1.TaintsFromMachineAnnotation] = "example.com/db:NoSchedule"
		Expect(todo()).To(BeEmpty())
	})

	It("print the addresses from which the host's token was used", func() {
		clitest.RecordTwoAddresses(h.config)
		answer, _ := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Addresses).To(Equal([]boots.Address{{Address: "192.0.2.7"}, {Address: "192.0.2.8", Refused: true}}))
		_, r := h.asked(true, "machine", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`Token: +used from 192\.0\.2\.7, 192\.0\.2\.8\(refused\)\n`))
	})

	It("require no action for a label that the kubelet reports", func() {
		h.node.Labels["kubernetes.io/os"] = "another"
		answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.Labels).To(ContainElement(nodeProperty{Text: "kubernetes.io/os=linux", From: []string{"Poolboot"}, State: StateDiffers, Value: "another"}))
	})

	It("report that the Node can't be read, and print everything else", func() {
		answer, r := h.asked(false, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.NodeSeen).To(BeFalse())
		Expect(answer.Unseen).To(ContainElement(ContainSubstring("secrets is forbidden")))
		Expect(answer.Labels).To(HaveEach(HaveField("State", BeEmpty())))
	})

	It("print the remedy of a condition", func() {
		h.config.Status.Conditions = append(h.config.Status.Conditions, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "LabelConflict", Message: "make them agree"})
		answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(answer.Todo).To(Equal([]string{"make them agree"}))
	})

	It("print that a Machine with the labels of two pools has no pool, and that the Node of a moved Machine decides", func() {
		h.config.Status.NodeRef, h.config.Status.PoolRole = bootstrapv1.NodeReference{}, ""
		h.infra += "---\n" + clitest.Pool("infra-1", "storage")
		h.machine.Labels["node-role.kubernetes.io/storage"] = ""
		answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(answer.Pool).To(BeEmpty())
		Expect(answer.Todo).To(ConsistOf(And(ContainSubstring("infra"), ContainSubstring("storage"))))

		delete(h.machine.Labels, "node-role.kubernetes.io/infra")
		h.config.Status.NodeRef, h.config.Status.PoolRole = bootstrapv1.NodeReference{Name: "infra-x7k2m"}, "infra"
		answer, _ = h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Why).To(ContainSubstring(`the Machine's labels select pool "storage"`))
	})

	It("print that a Machine without its pool waits, and the pool that is on record for a host", func() {
		h.config.Status.NodeRef, h.config.Status.PoolRole, h.config.Status.Conditions = bootstrapv1.NodeReference{}, "", nil
		h.machine.Labels = map[string]string{"node-role.kubernetes.io/gpu": ""}
		answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(answer.Pool).To(BeEmpty())
		Expect(answer.Todo).To(ContainElement(And(ContainSubstring("node-role.kubernetes.io/gpu="), ContainSubstring("spec.poolRole: worker"))))

		h.machine.Labels = nil
		h.config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost
		subject := &subject{config: h.config, machine: h.machine, bmh: &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "rack1-u12",
			Annotations: map[string]string{poolv1.HostRetainedPoolAnnotation: "infra-1/infra/uid-1"}}}}
		for _, role := range []string{"infra", "worker"} {
			subject.pools = append(subject.pools, poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role, Annotations: map[string]string{poolv1.ClusterIdentityAnnotation: "uid-1"}},
				Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: role}})
		}
		decided, err := subject.decidePool()
		Expect(err).NotTo(HaveOccurred())
		Expect(decided.Pool).To(Equal("infra"))
		Expect(decided.Why).To(Equal(`RetainedByHost: pool "infra", which is retained on BareMetalHost rack1-u12`))
	})

	It("evaluate label rules for a host that enrolled with its name, as its boot does", func() {
		h.config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "shop-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		h.config.Annotations = map[string]string{bootstrapv1.EnrolledFromAnnotation: "192.0.2.7"}
		h.config.Status.NodeRef, h.config.Status.DerivedNodeLabels = bootstrapv1.NodeReference{}, nil
		labels, err := (&subject{config: h.config}).derivedLabels(&poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{
			Node: nodev1.NodeSettings{LabelRules: []nodev1.NodeLabelRule{{Key: "example.com/site", ValueExpression: "host.name"}}}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(labels).To(ConsistOf(HaveField("Value", "shop-7")))
		Expect(boots.ListAddresses(h.config)).To(Equal([]boots.Address{{Address: "192.0.2.7"}}), "explain and boots -o wide say where it enrolled from")
	})

	Describe("of a host that enrolled and is blocked, which has no Node yet,", func() {
		BeforeEach(func() {
			h.config.OwnerReferences = nil
			h.config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "shop-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
			h.config.Spec.PoolRole = "infra"
			h.config.CreationTimestamp = metav1.Now()
			h.config.Status.NodeRef, h.config.Status.HostRef, h.config.Status.DerivedNodeLabels = bootstrapv1.NodeReference{}, bootstrapv1.HostReference{}, nil
			h.config.Status.Conditions = []metav1.Condition{
				{Type: bootstrapv1.DataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.HostEnrolledReason},
				{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.HostFactMissingReason, Message: "host.labels.rack is missing"},
			}
			h.infra = clitest.Pool("infra-1", "infra") + "  node:\n    labelRules:\n" + newRule("example.com/rack", "host.labels.rack", ", onMissing: Block")
		})

		It("find its PoolbootConfig by the future name of the Node, and advise only what is possible", func() {
			answer, r := h.asked(true, "node", "shop-7", "-o", "json")
			Expect(r.Code).To(Equal(2), r.ErrOut)
			Expect(answer.PoolbootConfig).To(Equal("edge/infra-x7k2m-config"))
			Expect(answer.Node).To(Equal("shop-7"))
			Expect(answer.Todo).To(ContainElement("host.labels.rack is missing"))
			Expect(answer.Todo).To(ContainElement(And(ContainSubstring("set onMissing: Skip"), Not(ContainSubstring("give the")))))
			Expect(answer.Timeline).To(HaveExactElements(HaveField("Step", record.StepCreated)), "it needs no data Secret")
			_, r = h.asked(true, "node", "shop-8", "-o", "json")
			Expect(r.Code).To(Equal(1))
		})

		It("print no empty table of labels or taints", func() {
			_, r := h.asked(true, "node", "shop-7")
			Expect(r.Out).To(And(ContainSubstring("STEP "), ContainSubstring("Stage: "), Not(ContainSubstring("ON THE NODE"))))
		})

		It("do not use another host's Node of the same name", func() {
			h.node.Name, h.node.Annotations = "shop-7", nil
			h.infra = clitest.Pool("infra-1", "infra")
			answer, _ := h.asked(true, "node", "shop-7", "-o", "json")
			Expect(answer.NodeSeen).To(BeFalse())
			Expect(answer.Unseen).To(ContainElement("Node shop-7: it exists and was not pre-registered for PoolbootConfig infra-x7k2m-config"))
		})
	})

	It("report a role label of a Node that no pool selects, as for a Machine, whether Poolboot booted it or not", func() {
		const task = "correct or remove node-role.kubernetes.io/infa= of Node infra-x7k2m, or create its pool: no pool selects this label"
		h.node.Labels["node-role.kubernetes.io/infa"] = ""
		todo := func() []string {
			answer, _ := h.asked(true, "node", "infra-x7k2m", "-o", "json")
			return answer.Todo
		}
		Expect(todo()).To(BeEmpty(), "it is in a custom pool")
		delete(h.node.Labels, "node-role.kubernetes.io/infra")
		Expect(todo()).To(ContainElement(task))
		h.node.Annotations, h.config.OwnerReferences, h.config.Status.NodeRef = nil, nil, bootstrapv1.NodeReference{}
		Expect(todo()).To(ConsistOf(task))
	})

	It("find the PoolbootConfig of a Node by its annotation, and use the labels of a Node that Poolboot did not boot", func() {
		h.config.Status.NodeRef = bootstrapv1.NodeReference{}
		answer, r := h.asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.PoolbootConfig).To(Equal("edge/infra-x7k2m-config"))
		h.node.Annotations, h.config.OwnerReferences = nil, nil
		answer, r = h.asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.PoolbootConfig).To(BeEmpty(), "Poolboot did not boot it")
		Expect(answer.Why).To(Equal("node-role.kubernetes.io/infra="))
		Expect(answer.Pool).To(Equal("infra"))
		Expect(answer.Message).To(Equal("none: no PoolbootConfig has this Node, so Poolboot neither booted it nor manages it"))
		_, r = h.asked(false, "node", "infra-x7k2m")
		Expect(r.Code).To(Equal(1))
		Expect(r.ErrOut).To(ContainSubstring("secrets is forbidden"))
	})

	It("read all objects from files", func() {
		var documents []string
		for _, object := range []client.Object{h.machine, h.config, h.node} {
			kinds, _, err := input.Scheme().ObjectKinds(object)
			Expect(err).NotTo(HaveOccurred())
			object.GetObjectKind().SetGroupVersionKind(kinds[0])
			document, err := json.Marshal(object)
			Expect(err).NotTo(HaveOccurred())
			documents = append(documents, string(document))
		}
		path := clitest.WriteFile("all.yaml", append(documents, h.infra, clitest.Pool("infra-1", "worker"))...)
		for _, kind := range []string{"machine", "node"} {
			out := clitest.ExpectSuccess(runPoolboot("explain", kind, "infra-x7k2m", "-f", path))
			Expect(out).To(And(MatchRegexp(`Pool: +infra\n`), MatchRegexp(`example.com/own=yes +Present +PoolbootConfig edge/infra-x7k2m-config`), ContainSubstring("To do:\n  nothing")))
			clitest.ExpectError(runPoolboot("explain", kind, "nobody", "-f", path), 1, "the files contain no")
		}
	})
})
