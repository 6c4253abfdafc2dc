package explain

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// inStage has an update in a stage for some time.
func inStage(stage bootstrapv1.UpdateStage, ago time.Duration) func(*bootstrapv1.UpdateStatus) {
	return func(u *bootstrapv1.UpdateStatus) {
		u.Stage, u.StageTime = stage, &metav1.Time{Time: time.Now().Add(-ago)}
	}
}

var _ = Describe("explain machine and explain node of a running host", func() {
	var h *bootedHost
	BeforeEach(func() { h = newBootedHost() })

	DescribeTable("print the configs of the host and its pool, and what to do when they differ",
		func(runs string, code int, todo ...string) {
			h.config.Status.Boot.ServedConfiguration.Name = runs
			h.infra += "status: {configuration: {name: rendered-infra-" + strings.Repeat("a", 32) + "}}\n"
			answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
			Expect(r.Code).To(Equal(code), r.ErrOut)
			Expect(answer.Configuration).To(Equal(runs))
			Expect(answer.PoolConfiguration).To(Equal("rendered-infra-" + strings.Repeat("a", 32)))
			Expect(answer.Todo).To(HaveExactElements(todo))
			_, r = h.asked(true, "machine", "infra-x7k2m")
			Expect(r.Out).To(And(MatchRegexp(`Runs: +%s\n`, runs), MatchRegexp(`Handed out: +rendered-infra-a+\n`)))
		},
		Entry("the same", "rendered-infra-"+strings.Repeat("a", 32), 0),
		Entry("another pool's config with the same content", "rendered-edge-"+strings.Repeat("a", 32), 0),
		Entry("a different config", "rendered-infra-"+strings.Repeat("b", 32), 2, "Machine infra-x7k2m runs another configuration than pool infra hands out: roll out its MachineDeployment to renew it, see docs/pools.md#renewing-machines"),
	)

	DescribeTable("print how far the update of a host with an agent is, and what to do only if it cannot continue",
		func(reason, message string, code int, todo ...any) {
			h.config.Status.Boot.ServedConfiguration.Name = "rendered-infra-" + strings.Repeat("b", 32)
			record.RevokeToken(h.config)
			h.config.Status.Update.DesiredRevision, h.config.Status.Update.Desired.Name = strings.Repeat("0", 64), "rendered-infra-"+strings.Repeat("a", 32)
			conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
			h.infra += "status: {configuration: {name: rendered-infra-" + strings.Repeat("a", 32) + "}}\n"
			answer, r := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
			Expect(r.Code).To(Equal(code), r.ErrOut)
			Expect(answer.Update).To(Equal(reason + ": " + message))
			Expect(answer.Todo).To(HaveExactElements(todo...))
			_, r = h.asked(true, "machine", "infra-x7k2m")
			Expect(r.Out).To(MatchRegexp("Update: +%s: %s\n", reason, message))
		},
		Entry("while it is drained", bootstrapv1.UpdateDrainingReason, "Node infra-x7k2m is drained", 0),
		Entry("while it cannot be staged, which is retried", bootstrapv1.UpdateFailingReason, "Node infra-x7k2m runs x, and its host cannot stage the update", 0),
		Entry("after it failed", bootstrapv1.UpdateDegradedReason, "Node infra-x7k2m: correct this", 2, "Node infra-x7k2m: correct this"),
	)

	DescribeTable("give the verdict of rollout status about an update:",
		func(code int, change func(update *bootstrapv1.UpdateStatus), pool, reason, message string, todo ...any) {
			runs, handedOut := "rendered-infra-"+strings.Repeat("b", 32), "rendered-infra-"+strings.Repeat("a", 32)
			record.RevokeToken(h.config)
			h.config.Status.Boot.ServedConfiguration.Name = runs
			h.config.Status.Update.DesiredRevision, h.config.Status.Update.Desired.Name = strings.Repeat("0", 64), handedOut
			notReady := metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeNotReadyReason, Message: "Node infra-x7k2m is not Ready"}
			if change(&h.config.Status.Update); h.config.Status.Update.Stage == bootstrapv1.UpdateRebooting {
				conditions.Set(h.config, notReady)
				notReady.Type, notReady.Message = clusterv1.ReadyCondition, "NodeInPool: "+notReady.Message
				conditions.Set(h.config, notReady)
			}
			conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
			h.infra += pool + "status: {configuration: {name: " + handedOut + "}}\n"
			if strings.Contains(pool, "gates") {
				h.infra = strings.Replace(h.infra, "status: {", "status: {conditions: [{type: UpdateGatesOpen, status: \"False\", reason: GateUnreadable, message: \"the gate ceph can't be read: give it this right\"}], ", 1)
			}
			answer, r := h.asked(true, "node", "infra-x7k2m", "-o", "json")
			Expect(answer.Todo).To(HaveExactElements(todo...))
			Expect(r.Code).To(Equal(code), r.ErrOut)
		},
		Entry("a drain within its time", 0, inStage(bootstrapv1.UpdateDraining, time.Minute), "", "Draining", "Pod web remains"),
		Entry("a drain past drainTimeoutSeconds", 0, inStage(bootstrapv1.UpdateDraining, time.Hour), "", "Draining", "Pod web remains"),
		Entry("a host that reboots, whose Node is not Ready", 0, inStage(bootstrapv1.UpdateRebooting, time.Minute), "", "Rebooting", "it reboots"),
		Entry("a host that does not return from its reboot", 2, inStage(bootstrapv1.UpdateRebooting, 5*time.Hour), "", "UpdateOverdue", "it reboots, check its console", "it reboots, check its console"),
		Entry("a gate that can't be read", 2, func(*bootstrapv1.UpdateStatus) {}, "  updates: {gates: [{name: ceph}]}\n", "Waiting", "Node infra-x7k2m waits",
			"MachineConfigPool edge/infra: the gate ceph can't be read: give it this right"),
	)

	DescribeTable("find a Node by the names that rollout retry --host accepts", func(name string) {
		answer, r := h.asked(true, "node", name, "-o", "json")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(answer.Node).To(Equal("infra-x7k2m"))
	}, Entry("its host", "rack1-u12"), Entry("its PoolbootConfig", "infra-x7k2m-config"))

	It("print that a Node is not Ready, and nothing to do, because it can become Ready", func() {
		record.RevokeToken(h.config)
		conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeNotReadyReason, Message: "Node infra-x7k2m is not Ready"})
		conditions.Set(h.config, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeNotReadyReason, Message: "NodeInPool: Node infra-x7k2m is not Ready"})
		_, r := h.asked(true, "node", "infra-x7k2m")
		Expect(r.Out).To(And(MatchRegexp(`Stage: +NotReady for \S+: NodeInPool: Node infra-x7k2m is not Ready`), HaveSuffix("To do:\n  nothing\n")))
		Expect(r.Code).To(BeZero(), r.ErrOut)
	})

	It("print no NotReady for a Node that is Ready and has the labels of two pools", func() {
		record.RevokeToken(h.config)
		conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.PoolConflictReason, Message: "Node infra-x7k2m: two pools"})
		answer, r := h.asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(answer.Stage).To(BeEquivalentTo("OutsidePool"))
		Expect(answer.Todo).To(HaveExactElements("Node infra-x7k2m: two pools"))
		Expect(r.Code).To(Equal(2))
	})

	DescribeTable("name each unit that fails on the host and the command that shows its log, and never that there is nothing to do",
		func(status metav1.ConditionStatus, reason, message string) {
			h.config.Status.Update.DesiredRevision = strings.Repeat("0", 64)
			conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: status, Reason: reason, Message: message})
			h.node.Annotations[agentv1.ReportVersionAnnotation] = "1"
			h.node.Annotations[agentv1.FailingUnitsAnnotation] = "kubelet.service: it ended, and systemd starts it again: result exit-code, exit status 1\napp.service: it failed: result timeout"
			answer, r := h.asked(true, "node", "infra-x7k2m", "-o", "json")
			Expect(r.Code).To(Equal(2))
			Expect(answer.Todo).To(ContainElements(
				"kubelet.service: it ended, and systemd starts it again: result exit-code, exit status 1 (on the host, see journalctl -u kubelet.service)",
				"app.service: it failed: result timeout (on the host, see journalctl -u app.service)",
			))
			_, r = h.asked(true, "node", "infra-x7k2m")
			Expect(r.Out).NotTo(ContainSubstring("To do:\n  nothing"))
		},
		Entry("while the Node is Ready and the condition Updated is not written yet", metav1.ConditionTrue, bootstrapv1.UpdateDoneReason, "Node infra-x7k2m runs rendered-infra-1"),
		Entry("while the host is drained", metav1.ConditionFalse, bootstrapv1.UpdateDrainingReason, "Node infra-x7k2m is drained"),
		Entry("while the host is verified", metav1.ConditionFalse, bootstrapv1.UpdateVerifyingReason, "Node infra-x7k2m was changed"),
		Entry("while the host waits for others", metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node infra-x7k2m waits"),
	)

	It("print whether a host whose update failed reboots when it is tried again, and why", func() {
		runs, handedOut := "rendered-infra-"+strings.Repeat("b", 32), "rendered-infra-"+strings.Repeat("a", 32)
		h.config.Status.Boot.ServedConfiguration.Name, h.config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UpdateDegradedReason, Message: "correct this"})
		h.infra += "status: {configuration: {name: " + handedOut + "}}\n---\n" + clitest.Config(runs, "none", clitest.Motd("old"))
		answer, _ := h.asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(answer.Reboot).To(BeEmpty())
		Expect(answer.Unseen).To(ContainElement(ContainSubstring(handedOut)))
		h.infra += "---\n" + clitest.Config(handedOut, "none", clitest.Motd("new"))
		_, r := h.asked(true, "node", "infra-x7k2m")
		Expect(r.Out).To(MatchRegexp(`Reboot: +yes: file /etc/motd\n`))
	})

	DescribeTable("print whether a host that was changed by hand reboots when its configuration is applied again, and why", func(drift, want string) {
		runs := "rendered-infra-" + strings.Repeat("a", 32)
		h.config.Status.Boot.ServedConfiguration.Name, h.config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		h.node.Annotations[agentv1.ReportVersionAnnotation], h.node.Annotations[agentv1.DriftAnnotation] = "1", drift
		h.infra += "status: {configuration: {name: " + runs + "}}\n---\n" +
			strings.Replace(clitest.Config(runs, "none", strings.Replace(clitest.Motd("new"), "{", "{kernelArguments: [nosmt], ", 1)),
				"machineconfiguration.openshift.io/role: none", poolv1.RenderedForLabel+": infra", 1)
		_, r := h.asked(true, "node", "infra-x7k2m")
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
		h.config.Status.Boot.ServedConfiguration.Name, h.config.Status.Update.DesiredRevision = runs, strings.Repeat("0", 64)
		h.infra += "---\n" + clitest.Config(runs, "none", clitest.Motd("old"))
		answer, _ := h.asked(true, "node", "infra-x7k2m", "-o", "json")
		Expect(answer.Unseen).NotTo(ContainElement(HavePrefix("MachineConfig")))
	})

	DescribeTable("print that a host that has not booted runs nothing, and where to look", func(served, want string) {
		h.config.Status.Boot.ServedConfiguration.Name, h.config.Status.Conditions = served, nil
		_, r := h.asked(true, "machine", "infra-x7k2m")
		Expect(strings.Join(strings.Fields(r.Out), " ")).To(ContainSubstring("Runs: nothing: " + want + ". See its console, and its stage with kubectl poolboot boots infra-x7k2m-config -n edge Handed out:"))
	},
		Entry("before it has its configuration", "", "the host has not booted"),
		Entry("after that", "rendered-infra-1", "the host boots with rendered-infra-1, and has not joined"),
	)

	It("print which update gate a host waits for", func() {
		h.config.Status.Update.DesiredRevision = strings.Repeat("0", 64)
		conditions.Set(h.config, metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UpdateWaitingReason,
			Message: "Node infra-x7k2m runs x, and waits for its turn: see kubectl poolboot rollout plan infra -n edge"})
		h.infra += "  updates: {gates: [{name: storage}]}\nstatus: {conditions: [{type: UpdateGatesOpen, status: \"False\", message: the gate storage is closed}]}\n"
		answer, _ := h.asked(true, "machine", "infra-x7k2m", "-o", "json")
		Expect(answer.Update).To(Equal("Waiting: Node infra-x7k2m runs x, and the gate storage is closed"))
	})
})
