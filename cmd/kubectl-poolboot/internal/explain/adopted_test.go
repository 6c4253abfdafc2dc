package explain

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("explain node of a host that was adopted", func() {
	explained := func(config *bootstrapv1.PoolbootConfig) clitest.Result {
		GinkgoHelper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", UID: "uid-edge-7", Labels: map[string]string{"kubernetes.io/hostname": "edge-7"},
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: "edge/edge-7"}}}
		to := clitest.NewFakeConnection([]string{clitest.Pool("infra-1", "infra") + "status:\n  configuration:\n    name: rendered-infra-1\n", clitest.Pool("infra-1", "worker")}, config)
		to.Own = clitest.NewFakeClientBuilder(node).Build()
		return clitest.RunOn(to, New, "explain", "node", "edge-7")
	}

	DescribeTable("says what the host waits for, and asks for no label of the pool, while the host is as it was found", func(reason, message string) {
		r := explained(clitest.AdoptedConfig("edge-7", reason, message))
		rows := clitest.Rows(r.Out)
		Expect(rows).To(ContainElements("Pool: infra", "Runs: as-found", HavePrefix("Stage: AsFound for 60m"), HavePrefix("kubernetes.io/hostname=edge-7 Present")))
		Expect(r.Out).NotTo(ContainSubstring("kubectl label node"))
		Expect(rows).To(ContainElements("Update: "+reason+": "+message, "To do: nothing"))
		Expect(r.Code).To(BeZero())
	},
		Entry("without an agent", bootstrapv1.NoAgentReason, "kubectl poolboot install-agent edge-7 prints the script"),
		Entry("with a preview", bootstrapv1.AdoptionPreviewReason, rollout.PreviewChanges+" Reboot: /etc/a: Content. To agree, set spec.host.adoption"),
		Entry("if it can't follow", bootstrapv1.AdoptionPreviewReason, rollout.PreviewImpossible+": fips"),
	)

	It("says that the Node does not exist, and nothing to do, because it can join later", func() {
		config := clitest.AdoptedConfig("edge-7", bootstrapv1.UpdateDoneReason, "")
		message := "Node edge-7 does not exist in the workload cluster, and is adopted when it joins."
		config.Status = bootstrapv1.PoolbootConfigStatus{PoolRole: "infra", Conditions: []metav1.Condition{
			{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionTrue}, {Type: bootstrapv1.DataSecretAvailableCondition, Status: metav1.ConditionTrue},
			{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.WaitingForNodeReason, Message: message}}}
		ready := outlook.Ready(config)
		Expect(ready).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.WaitingForNodeReason)))
		config.Status.Conditions = append(config.Status.Conditions, ready)
		to := clitest.NewFakeConnection([]string{clitest.Pool("infra-1", "infra"), clitest.Pool("infra-1", "worker")}, config)
		to.Own = clitest.NewFakeClientBuilder().Build()
		r := clitest.RunOn(to, New, "explain", "node", "edge-7")
		Expect(clitest.Rows(r.Out)).To(ContainElements(MatchRegexp("Stage: WaitingForHost for \\S+: NodeInPool: "+message), "To do: nothing"))
		Expect(r.Code).To(BeZero(), r.ErrOut)
	})

	It("expects of a Node of the control plane that follows its pool what the pool declares, and no role label", func() {
		config := clitest.AdoptedConfig("cp-1", bootstrapv1.UpdateDoneReason, "Node cp-1 runs rendered-control-plane-1")
		config.Spec.Host.Adoption, config.Spec.PoolRole, config.Status.PoolRole = bootstrapv1.AdoptionFollow, poolv1.RoleControlPlane, poolv1.RoleControlPlane
		config.Status.Conditions[1].Status, config.Status.Conditions[1].Reason = metav1.ConditionTrue, bootstrapv1.NodeReadyInPoolReason
		config.Status.Boot.ServedConfiguration.Name = "rendered-control-plane-1"
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1", UID: "uid-cp-1", Annotations: map[string]string{poolv1.NodeConfigAnnotation: "edge/cp-1"},
			Labels: map[string]string{"kubernetes.io/hostname": "cp-1", "node-role.kubernetes.io/control-plane": ""}}}
		to := clitest.NewFakeConnection([]string{clitest.Pool("infra-1", "control-plane") + "  node: {labels: {example.com/rack: r1}}\n"}, config)
		to.Own = clitest.NewFakeClientBuilder(node).Build()
		out := clitest.RunOn(to, New, "explain", "node", "cp-1").Out
		Expect(clitest.Rows(out)).To(ContainElements("Pool: control-plane", HavePrefix("example.com/rack=r1 Missing MachineConfigPool edge/control-plane spec.node.labels")))
		Expect(out).NotTo(Or(ContainSubstring("don't put it in the pool"), ContainSubstring("kubectl label node cp-1 node-role")))
	})

	It("does not ask to replace a host that follows its pool and has no agent yet", func() {
		config := clitest.AdoptedConfig("edge-7", bootstrapv1.NoAgentReason, "kubectl poolboot install-agent edge-7 prints the script")
		config.Spec.Host.Adoption = bootstrapv1.AdoptionFollow
		config.Status.Conditions[1].Status, config.Status.Conditions[1].Reason = metav1.ConditionTrue, bootstrapv1.NodeReadyInPoolReason
		Expect(explained(config).Out).To(And(ContainSubstring("- kubectl poolboot install-agent edge-7"), Not(ContainSubstring("replace its host"))))
	})
})
