package explain

import (
	"encoding/json"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// inStage has an update in a stage for some time.
func inStage(stage bootstrapv1.UpdateStage, ago time.Duration) func(*bootstrapv1.UpdateStatus) {
	return func(u *bootstrapv1.UpdateStatus) {
		u.Stage, u.StageTime = stage, &metav1.Time{Time: time.Now().Add(-ago)}
	}
}

var _ = Describe("explain machine and explain node", func() {
	var (
		machine *clusterv1.Machine
		config  *bootstrapv1.PoolbootConfig
		infra   string
		node    *corev1.Node
	)
	BeforeEach(func() {
		machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2m", Namespace: "edge", Labels: map[string]string{
			"node-role.kubernetes.io/infra": "", "rack.node.cluster.x-k8s.io/id": "r7", "example.com/not-synced": "x"}}}
		machine.Spec.ClusterName = "infra-1"
		machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: "PoolbootConfig", Name: "infra-x7k2m-config", APIGroup: bootstrapv1.GroupVersion.Group}
		machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Machine", Name: "infra-x7k2m", APIGroup: "infrastructure.cluster.x-k8s.io"}
		config = clitest.PoolbootConfig("infra", "infra-x7k2m", "infra-x7k2m")
		config.Spec.Node.Labels = map[string]string{"example.com/own": "yes"}
		config.Status.HostRef = bootstrapv1.HostReference{Name: "rack1-u12", Namespace: "edge", UID: "uid-1"}
		config.Status.DerivedNodeLabels = map[string]string{"example.com/site": "dallas"}
		config.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool", Message: "all is well"}}
		infra = clitest.Pool("infra-1", "infra") + "  node:\n    labels: {example.com/tier: infra}\n    taints: [{key: example.com/infra, effect: NoSchedule}]\n" +
			"    labelRules:\n" + newRule("example.com/site", "host.name", "")
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2m",
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: "edge/infra-x7k2m-config"},
			Labels: map[string]string{"node-role.kubernetes.io/infra": "", poolv1.NodePoolLabel: "infra", "example.com/tier": "infra", "example.com/own": "yes",
				"example.com/site": "dallas", "rack.node.cluster.x-k8s.io/id": "r7", poolv1.NodeMetal3UUIDLabel: "uid-1", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "infra-x7k2m", "beta.kubernetes.io/os": "linux", "example.com/synced": "yes"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", APIVersion: "v1", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:beta.kubernetes.io/os":{},"f:example.com/tier":{}}}}`)}, {Manager: "manager", APIVersion: "v1", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:example.com/synced":{}}}}`)}},
		}}
		node.Spec.Taints = []corev1.Taint{{Key: "example.com/infra", Effect: corev1.TaintEffectNoSchedule}, {Key: "node.kubernetes.io/disk-pressure", Effect: corev1.TaintEffectNoSchedule}}
	})
	asked := func(mayRead bool, args ...string) (*bootReport, clitest.Result) {
		GinkgoHelper()
		to := clitest.NewFakeConnection([]string{infra, clitest.Pool("infra-1", "worker")}, machine, config)
		if mayRead {
			to.Own = clitest.NewFakeClientBuilder().WithReturnManagedFields().WithObjects(node).Build()
		}
		r := clitest.RunOn(to, New, append([]string{"explain"}, args...)...)
		answer := &bootReport{}
		if json.Valid([]byte(r.Out)) {
			Expect(json.Unmarshal([]byte(r.Out), answer)).To(Succeed())
		}
		return answer, r
	}
	from := func(list []nodeProperty) map[string]string {
		found := map[string]string{}
		for _, p := range list {
			found[p.Text] = string(p.State) + " " + strings.Join(p.From, ", ")
		}
		return found
	}

	DescribeTable("print the pool and the reason, and the source of every label and taint on the Node",
		func(args ...string) {
			answer, r := asked(true, append(args, "infra-x7k2m", "-o", "json")...)
			Expect(r.ErrOut).To(BeEmpty())
			Expect(r.Code).To(BeZero())
			Expect(answer.Pool).To(Equal("infra"))
			Expect(answer.Why).To(Equal("recorded for Node infra-x7k2m; MachineLabels: Machine infra-x7k2m has node-role.kubernetes.io/infra="))
			Expect(answer.Host).To(Equal("edge/rack1-u12"))
			Expect(from(answer.Labels)).To(Equal(map[string]string{
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
			Expect(from(answer.Taints)).To(Equal(map[string]string{
				"example.com/infra:NoSchedule":                       "Present MachineConfigPool edge/infra spec.node.taints",
				poolv1.NodeUnassignedTaint + ":NoSchedule":           "Removed Poolboot",
				clusterv1.NodeUninitializedTaint.Key + ":NoSchedule": "Removed Poolboot",
				"node.kubernetes.io/disk-pressure:NoSchedule":        "Present Kubernetes, by the Node's conditions",
			}))
		},
		Entry("of a Machine", "machine"), Entry("of a Node with a PoolbootConfig", "node"),
	)

	It("print what is missing or differs, the client that set it, and what to do", func() {
		delete(node.Labels, "example.com/own")
		node.Labels["example.com/tier"] = "gold"
		node.Spec.Taints = nil
		answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(r.ErrOut).To(Equal("error: infra-x7k2m: 3 to do: see the output\n"))
		Expect(answer.Todo).To(ConsistOf(
			HavePrefix("kubectl label node infra-x7k2m example.com/own=yes: PoolbootConfig edge/infra-x7k2m-config spec.node.labels declares it, and the Node does not have it"),
			And(HavePrefix("kubectl label node infra-x7k2m example.com/tier=infra --overwrite"), ContainSubstring(`"gold" was set by kubelet, and Poolboot does not overwrite it`)),
			HavePrefix("kubectl taint node infra-x7k2m example.com/infra:NoSchedule"),
		))
		_, r = asked(true, "machine", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`example.com/tier=infra +Differs: "gold" +MachineConfigPool edge/infra spec.node.labels`))
	})

	It("print the taints of the Machine, those that replace taints of the pool, and those that Cluster API does not keep", func() {
		machine.Spec.Taints = []clusterv1.MachineTaint{
			{Key: "example.com/infra", Value: "db", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways},
			{Key: "example.com/burn-in", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
		}
		node.Spec.Taints = []corev1.Taint{{Key: "example.com/burn-in", Effect: corev1.TaintEffectNoSchedule}}
		answer, _ := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Todo).To(ConsistOf(
			HavePrefix("start Cluster API with --feature-gates=MachineTaintPropagation=true, or read its log: the Node does not have the taint example.com/infra=db:NoSchedule"),
			HavePrefix("the taint example.com/infra=db:NoSchedule of Machine edge/infra-x7k2m spec.taints replaces example.com/infra:NoSchedule of MachineConfigPool edge/infra spec.node.taints"),
		))
		Expect(answer.Taints).To(ContainElement(nodeProperty{Text: "example.com/burn-in:NoSchedule", From: []string{"Machine spec.taints"}, State: StatePresent}))
	})

	It("print that nobody removes the taint of a Machine while Cluster API runs without the feature gate for it", func() {
		machine.Spec.Taints = []clusterv1.MachineTaint{{Key: "example.com/db", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways}}
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/db", Effect: corev1.TaintEffectNoSchedule})
		todo := func() []string {
			answer, _ := asked(true, "machine", "infra-x7k2m", "-o", "json")
			return answer.Todo
		}
		Expect(todo()).To(BeEmpty(), "Cluster API has not seen the Node yet")
		node.Annotations[clusterv1.LabelsFromMachineAnnotation] = ""
		Expect(todo()).To(ConsistOf("start Cluster API with --feature-gates=MachineTaintPropagation=true, or remove the taint example.com/db:NoSchedule from the Machine and with " +
			"kubectl taint node infra-x7k2m example.com/db:NoSchedule-: without the feature gate, Cluster API does not remove it from the Node"))
		node.Annotations[clusterv1.TaintsFromMachineAnnotation] = "example.com/db:NoSchedule"
		Expect(todo()).To(BeEmpty())
	})

	DescribeTable("print the configs of the host and its pool, and what to do when they differ",
		func(runs string, code int, todo ...string) {
			config.Status.Boot.ServedConfiguration.Name = runs
			infra += "status: {configuration: {name: rendered-infra-" + strings.Repeat("a", 32) + "}}\n"
			answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
			Expect(r.Code).To(Equal(code), r.ErrOut)
			Expect(answer.Configuration).To(Equal(runs))
			Expect(answer.PoolConfiguration).To(Equal("rendered-infra-" + strings.Repeat("a", 32)))
			Expect(answer.Todo).To(HaveExactElements(todo))
			_, r = asked(true, "machine", "infra-x7k2m")
			Expect(r.Out).To(And(MatchRegexp(`Runs: +%s\n`, runs), MatchRegexp(`Handed out: +rendered-infra-a+\n`)))
		},
		Entry("the same", "rendered-infra-"+strings.Repeat("a", 32), 0),
		Entry("another pool's config with the same content", "rendered-edge-"+strings.Repeat("a", 32), 0),
		Entry("a different config", "rendered-infra-"+strings.Repeat("b", 32), 2, "Machine infra-x7k2m runs another configuration than pool infra hands out: roll out its MachineDeployment to renew it, see docs/pools.md#renewing-machines"),
	)

	DescribeTable("print how far the update of a host with an agent is, and what to do only if it cannot continue",
		func(reason, message string, code int, todo ...any) {
			config.Status.Boot.ServedConfiguration.Name = "rendered-infra-" + strings.Repeat("b", 32)
			record.RevokeToken(config)
			config.Status.Update.DesiredRevision, config.Status.Update.Desired.Name = strings.Repeat("0", 64), "rendered-infra-"+strings.Repeat("a", 32)
			conditions.Set(config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
			infra += "status: {configuration: {name: rendered-infra-" + strings.Repeat("a", 32) + "}}\n"
			answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
			Expect(r.Code).To(Equal(code), r.ErrOut)
			Expect(answer.Update).To(Equal(reason + ": " + message))
			Expect(answer.Todo).To(HaveExactElements(todo...))
			_, r = asked(true, "machine", "infra-x7k2m")
			Expect(r.Out).To(MatchRegexp("Update: +%s: %s\n", reason, message))
		},
		Entry("while it is drained", bootstrapv1.UpdateDrainingReason, "Node infra-x7k2m is drained", 0),
		Entry("after it failed", bootstrapv1.UpdateDegradedReason, "Node infra-x7k2m: correct this", 2, "Node infra-x7k2m: correct this"),
	)

	DescribeTable("give the verdict of rollout status about an update:",
		func(code int, change func(update *bootstrapv1.UpdateStatus), pool, reason, message string, todo ...any) {
			runs, handedOut := "rendered-infra-"+strings.Repeat("b", 32), "rendered-infra-"+strings.Repeat("a", 32)
			record.RevokeToken(config)
			config.Status.Boot.ServedConfiguration.Name = runs
			config.Status.Update.DesiredRevision, config.Status.Update.Desired.Name = strings.Repeat("0", 64), handedOut
			notReady := metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeNotReadyReason, Message: "Node infra-x7k2m is not Ready"}
			if change(&config.Status.Update); config.Status.Update.Stage == bootstrapv1.UpdateRebooting {
				conditions.Set(config, notReady)
				notReady.Type, notReady.Message = clusterv1.ReadyCondition, "NodeInPool: "+notReady.Message
				conditions.Set(config, notReady)
			}
			conditions.Set(config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
			infra += pool + "status: {configuration: {name: " + handedOut + "}}\n"
			if strings.Contains(pool, "gates") {
				infra = strings.Replace(infra, "status: {", "status: {conditions: [{type: UpdateGatesOpen, status: \"False\", reason: GateUnreadable, message: \"the gate ceph can't be read: give it this right\"}], ", 1)
			}
			answer, r := asked(true, "node", "infra-x7k2m", "-o", "json")
			Expect(answer.Todo).To(HaveExactElements(todo...))
			Expect(r.Code).To(Equal(code), r.ErrOut)
		},
		Entry("a drain within its time", 0, inStage(bootstrapv1.UpdateDraining, time.Minute), "", "Draining", "Pod web remains"),
		Entry("a drain past drainTimeoutSeconds", 2, inStage(bootstrapv1.UpdateDraining, time.Hour), "", "Draining", "Pod web remains", "Pod web remains"),
		Entry("a host that reboots, whose Node is not Ready", 0, inStage(bootstrapv1.UpdateRebooting, time.Minute), "", "Rebooting", "it reboots"),
		Entry("a host that does not return from its reboot", 2, inStage(bootstrapv1.UpdateRebooting, 5*time.Hour), "", "Rebooting", "it reboots, check its console", "it reboots, check its console"),
		Entry("a gate that can't be read", 2, func(*bootstrapv1.UpdateStatus) {}, "  updates: {gates: [{name: ceph}]}\n", "Waiting", "Node infra-x7k2m waits",
			"MachineConfigPool edge/infra: the gate ceph can't be read: give it this right"),
	)

	DescribeTable("find a Node by the names that rollout retry --host accepts", func(name string) {
		answer, r := asked(true, "node", name, "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.Node).To(Equal("infra-x7k2m"))
	}, Entry("its host", "rack1-u12"), Entry("its PoolbootConfig", "infra-x7k2m-config"))

	It("print no NotReady for a Node that is Ready and has the labels of two pools", func() {
		record.RevokeToken(config)
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.PoolConflictReason, Message: "Node infra-x7k2m: two pools"})
		answer, r := asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(answer.Stage).To(BeEquivalentTo("OutsidePool"))
		Expect(answer.Todo).To(HaveExactElements("Node infra-x7k2m: two pools"))
		Expect(r.Code).To(Equal(2))
	})

	DescribeTable("name each unit that fails on the host and the command that shows its log, and never that there is nothing to do",
		func(status metav1.ConditionStatus, reason, message string) {
			config.Status.Update.DesiredRevision = strings.Repeat("0", 64)
			conditions.Set(config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: status, Reason: reason, Message: message})
			node.Annotations[agentv1.ReportVersionAnnotation] = "1"
			node.Annotations[agentv1.FailingUnitsAnnotation] = "kubelet.service: it ended, and systemd starts it again: result exit-code, exit status 1\napp.service: it failed: result timeout"
			answer, r := asked(true, "node", "infra-x7k2m", "-o", "json")
			Expect(r.Code).To(Equal(2))
			Expect(answer.Todo).To(ContainElements(
				"kubelet.service: it ended, and systemd starts it again: result exit-code, exit status 1 (on the host, see journalctl -u kubelet.service)",
				"app.service: it failed: result timeout (on the host, see journalctl -u app.service)",
			))
			_, r = asked(true, "node", "infra-x7k2m")
			Expect(r.Out).NotTo(ContainSubstring("To do:\n  nothing"))
		},
		Entry("while the Node is Ready and the condition Updated is not written yet", metav1.ConditionTrue, bootstrapv1.UpdateDoneReason, "Node infra-x7k2m runs rendered-infra-1"),
		Entry("while the host is drained", metav1.ConditionFalse, bootstrapv1.UpdateDrainingReason, "Node infra-x7k2m is drained"),
		Entry("while the host is verified", metav1.ConditionFalse, bootstrapv1.UpdateVerifyingReason, "Node infra-x7k2m was changed"),
		Entry("while the host waits for others", metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node infra-x7k2m waits"),
	)

	It("print whether a host whose update failed reboots when it is tried again, and why", func() {
		runs, handedOut := "rendered-infra-"+strings.Repeat("b", 32), "rendered-infra-"+strings.Repeat("a", 32)
		config.Status.Boot.ServedConfiguration.Name, config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UpdateDegradedReason, Message: "correct this"})
		infra += "status: {configuration: {name: " + handedOut + "}}\n---\n" + clitest.Config(runs, "none", clitest.Motd("old"))
		answer, _ := asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(answer.Reboot).To(BeEmpty())
		Expect(answer.Unseen).To(ContainElement(ContainSubstring(handedOut)))
		infra += "---\n" + clitest.Config(handedOut, "none", clitest.Motd("new"))
		_, r := asked(true, "node", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`Reboot: +yes: file /etc/motd\n`))
	})

	DescribeTable("print whether a host that was changed by hand reboots when its configuration is applied again, and why", func(drift, want string) {
		runs := "rendered-infra-" + strings.Repeat("a", 32)
		config.Status.Boot.ServedConfiguration.Name, config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		node.Annotations[agentv1.ReportVersionAnnotation], node.Annotations[agentv1.DriftAnnotation] = "1", drift
		infra += "status: {configuration: {name: " + runs + "}}\n---\n" +
			strings.Replace(clitest.Config(runs, "none", strings.Replace(clitest.Motd("new"), "{", "{kernelArguments: [nosmt], ", 1)),
				"machineconfiguration.openshift.io/role: none", poolv1.RenderedForLabel+": infra", 1)
		_, r := asked(true, "node", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`Reboot: +%s\n`, want))
	},
		Entry("with a file", "/etc/motd: Content", "yes: file /etc/motd"),
		Entry("with several", "/etc/x: Overridden\nquiet: AdditionalKernelArgument\n/etc/motd: Mode", "yes: kernelArguments, file /etc/motd"),
		Entry("with a kernel argument that is missing", "nosmt: MissingKernelArgument", "yes: kernelArguments"),
		Entry("with a kernel argument that is left", "quiet: AdditionalKernelArgument", "yes: kernelArguments"),
		Entry("with what is not Poolboot's, which stays", "/etc/systemd/system/a.service.d/b.conf: AdditionalDropIn", "no: nothing changes on the host"),
	)

	It("predict nothing for a host whose pool hands out nothing yet", func() {
		runs := "rendered-worker-" + strings.Repeat("b", 32)
		config.Status.Boot.ServedConfiguration.Name, config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		infra += "---\n" + clitest.Config(runs, "none", clitest.Motd("old"))
		answer, _ := asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(answer.Unseen).NotTo(ContainElement(HavePrefix("MachineConfig")))
	})

	DescribeTable("print that a host that has not booted runs nothing, and where to look", func(served, want string) {
		config.Status.Boot.ServedConfiguration.Name, config.Status.Conditions = served, nil
		_, r := asked(true, "machine", "infra-x7k2m")
		Expect(strings.Join(strings.Fields(r.Out), " ")).To(ContainSubstring("Runs: nothing: " + want + ". See its console, and its stage with kubectl poolboot boots infra-x7k2m-config -n edge Handed out:"))
	},
		Entry("before it has its configuration", "", "the host has not booted"),
		Entry("after that", "rendered-infra-1", "the host boots with rendered-infra-1, and has not joined"),
	)

	It("print which update gate a host waits for", func() {
		config.Status.Update.DesiredRevision = strings.Repeat("0", 64)
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UpdateWaitingReason,
			Message: "Node infra-x7k2m runs x, and waits for other hosts of the pool" + rollout.SeeCondition})
		infra += "  updates: {gates: [{name: storage}]}\nstatus: {conditions: [{type: UpdateGatesOpen, status: \"False\", message: the gate storage is closed}]}\n"
		answer, _ := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Update).To(Equal("Waiting: Node infra-x7k2m runs x, and the gate storage is closed"))
	})

	It("print the addresses from which the host's token was used", func() {
		clitest.RecordTwoAddresses(config)
		answer, _ := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Addresses).To(Equal([]boots.Address{{Address: "192.0.2.7"}, {Address: "192.0.2.8", Refused: true}}))
		_, r := asked(true, "machine", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`Token: +used from 192\.0\.2\.7, 192\.0\.2\.8\(refused\)\n`))
	})

	It("require no action for a label that the kubelet reports", func() {
		node.Labels["kubernetes.io/os"] = "another"
		answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.Labels).To(ContainElement(nodeProperty{Text: "kubernetes.io/os=linux", From: []string{"Poolboot"}, State: StateDiffers, Value: "another"}))
	})

	It("report that the Node can't be read, and print everything else", func() {
		answer, r := asked(false, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.NodeSeen).To(BeFalse())
		Expect(answer.Unseen).To(ContainElement(ContainSubstring("secrets is forbidden")))
		Expect(answer.Labels).To(HaveEach(HaveField("State", BeEmpty())))
	})

	It("print the remedy of a condition", func() {
		config.Status.Conditions = append(config.Status.Conditions, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "LabelConflict", Message: "make them agree"})
		answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(answer.Todo).To(Equal([]string{"make them agree"}))
	})

	It("print that a Machine with the labels of two pools has no pool, and that the Node of a moved Machine decides", func() {
		config.Status.NodeRef, config.Status.PoolRole = bootstrapv1.NodeReference{}, ""
		infra += "---\n" + clitest.Pool("infra-1", "storage")
		machine.Labels["node-role.kubernetes.io/storage"] = ""
		answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(answer.Pool).To(BeEmpty())
		Expect(answer.Todo).To(ConsistOf(And(ContainSubstring("infra"), ContainSubstring("storage"))))

		delete(machine.Labels, "node-role.kubernetes.io/infra")
		config.Status.NodeRef, config.Status.PoolRole = bootstrapv1.NodeReference{Name: "infra-x7k2m"}, "infra"
		answer, _ = asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Why).To(ContainSubstring(`the Machine's labels select pool "storage"`))
	})

	It("print that a Machine without its pool waits, and the pool that is on record for a host", func() {
		config.Status.NodeRef, config.Status.PoolRole, config.Status.Conditions = bootstrapv1.NodeReference{}, "", nil
		machine.Labels = map[string]string{"node-role.kubernetes.io/gpu": ""}
		answer, r := asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(Equal(2))
		Expect(answer.Pool).To(BeEmpty())
		Expect(answer.Todo).To(ContainElement(And(ContainSubstring("node-role.kubernetes.io/gpu="), ContainSubstring("spec.poolRole: worker"))))

		machine.Labels = nil
		config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost
		subject := &subject{config: config, machine: machine, bmh: &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "rack1-u12",
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
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "shop-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		config.Annotations = map[string]string{bootstrapv1.EnrolledFromAnnotation: "192.0.2.7"}
		config.Status.NodeRef, config.Status.DerivedNodeLabels = bootstrapv1.NodeReference{}, nil
		labels, err := (&subject{config: config}).derivedLabels(&poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{
			Node: nodev1.NodeSettings{LabelRules: []nodev1.NodeLabelRule{{Key: "example.com/site", ValueExpression: "host.name"}}}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(labels).To(ConsistOf(HaveField("Value", "shop-7")))
		Expect(boots.ListAddresses(config)).To(Equal([]boots.Address{{Address: "192.0.2.7"}}), "explain and boots -o wide say where it enrolled from")
	})

	Describe("of a host that enrolled and is blocked, which has no Node yet,", func() {
		BeforeEach(func() {
			config.OwnerReferences = nil
			config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "shop-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
			config.Spec.PoolRole = "infra"
			config.CreationTimestamp = metav1.Now()
			config.Status.NodeRef, config.Status.HostRef, config.Status.DerivedNodeLabels = bootstrapv1.NodeReference{}, bootstrapv1.HostReference{}, nil
			config.Status.Conditions = []metav1.Condition{
				{Type: bootstrapv1.DataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.HostEnrolledReason},
				{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.HostFactMissingReason, Message: "host.labels.rack is missing"},
			}
			infra = clitest.Pool("infra-1", "infra") + "  node:\n    labelRules:\n" + newRule("example.com/rack", "host.labels.rack", ", onMissing: Block")
		})

		It("find its PoolbootConfig by the future name of the Node, and advise only what is possible", func() {
			answer, r := asked(true, "node", "shop-7", "-o", "json")
			Expect(r.Code).To(Equal(2), r.ErrOut)
			Expect(answer.PoolbootConfig).To(Equal("edge/infra-x7k2m-config"))
			Expect(answer.Node).To(Equal("shop-7"))
			Expect(answer.Todo).To(ContainElement("host.labels.rack is missing"))
			Expect(answer.Todo).To(ContainElement(And(ContainSubstring("set onMissing: Skip"), Not(ContainSubstring("give the")))))
			Expect(answer.Timeline).To(HaveExactElements(HaveField("Step", record.StepCreated)), "it needs no data Secret")
			_, r = asked(true, "node", "shop-8", "-o", "json")
			Expect(r.Code).To(Equal(1))
		})

		It("print no empty table of labels or taints", func() {
			_, r := asked(true, "node", "shop-7")
			Expect(r.Out).To(And(ContainSubstring("STEP "), ContainSubstring("Stage: "), Not(ContainSubstring("ON THE NODE"))))
		})

		It("do not use another host's Node of the same name", func() {
			node.Name, node.Annotations = "shop-7", nil
			infra = clitest.Pool("infra-1", "infra")
			answer, _ := asked(true, "node", "shop-7", "-o", "json")
			Expect(answer.NodeSeen).To(BeFalse())
			Expect(answer.Unseen).To(ContainElement("Node shop-7: it exists and was not pre-registered for PoolbootConfig infra-x7k2m-config"))
		})
	})

	It("report a role label of a Node that no pool selects, as for a Machine, whether Poolboot booted it or not", func() {
		const task = "correct or remove node-role.kubernetes.io/infa= of Node infra-x7k2m, or create its pool: no pool selects this label"
		node.Labels["node-role.kubernetes.io/infa"] = ""
		todo := func() []string {
			answer, _ := asked(true, "node", "infra-x7k2m", "-o", "json")
			return answer.Todo
		}
		Expect(todo()).To(BeEmpty(), "it is in a custom pool")
		delete(node.Labels, "node-role.kubernetes.io/infra")
		Expect(todo()).To(ContainElement(task))
		node.Annotations, config.OwnerReferences, config.Status.NodeRef = nil, nil, bootstrapv1.NodeReference{}
		Expect(todo()).To(ConsistOf(task))
	})

	It("find the PoolbootConfig of a Node by its annotation, and use the labels of a Node that Poolboot did not boot", func() {
		config.Status.NodeRef = bootstrapv1.NodeReference{}
		answer, r := asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.PoolbootConfig).To(Equal("edge/infra-x7k2m-config"))
		node.Annotations, config.OwnerReferences = nil, nil
		answer, r = asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.PoolbootConfig).To(BeEmpty(), "Poolboot did not boot it")
		Expect(answer.Why).To(Equal("node-role.kubernetes.io/infra="))
		Expect(answer.Pool).To(Equal("infra"))
		Expect(answer.Message).To(Equal("none: no PoolbootConfig has this Node, so Poolboot neither booted it nor manages it"))
		_, r = asked(false, "node", "infra-x7k2m")
		Expect(r.Code).To(Equal(1))
		Expect(r.ErrOut).To(ContainSubstring("secrets is forbidden"))
	})

	It("read all objects from files", func() {
		var documents []string
		for _, object := range []client.Object{machine, config, node} {
			kinds, _, err := input.Scheme().ObjectKinds(object)
			Expect(err).NotTo(HaveOccurred())
			object.GetObjectKind().SetGroupVersionKind(kinds[0])
			document, err := json.Marshal(object)
			Expect(err).NotTo(HaveOccurred())
			documents = append(documents, string(document))
		}
		path := clitest.WriteFile("all.yaml", append(documents, infra, clitest.Pool("infra-1", "worker"))...)
		for _, kind := range []string{"machine", "node"} {
			out := clitest.ExpectSuccess(runPoolboot("explain", kind, "infra-x7k2m", "-f", path))
			Expect(out).To(And(MatchRegexp(`Pool: +infra\n`), MatchRegexp(`example.com/own=yes +Present +PoolbootConfig edge/infra-x7k2m-config`), ContainSubstring("To do:\n  nothing")))
			clitest.ExpectError(runPoolboot("explain", kind, "nobody", "-f", path), 1, "the files contain no")
		}
	})
})
