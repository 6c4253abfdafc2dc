package explain

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("kubectl poolboot labels", func() {
	const declared = `  node:
    labels: {example.com/rack: r1}
    taints: [{key: example.com/infra, value: only, effect: NoExecute}]
`
	infra := clitest.Pool("edge", "infra") + declared

	It("prints the labels and taints that every Node of the pool is registered with", func() {
		path := clitest.WriteFile("pools.yaml", clitest.Pool("edge", "worker"), infra)
		Expect(clitest.ExpectSuccess(runPoolboot("labels", "-f", path, "--pool", "infra"))).To(Equal(`LABEL                            FROM
example.com/rack=r1              MachineConfigPool infra spec.node.labels
kubernetes.io/os=linux           Poolboot
node-role.kubernetes.io/infra=   MachineConfigPool infra spec.nodeSelector
poolboot.io/pool=infra           MachineConfigPool infra spec.poolRole

TAINT                                            FROM
example.com/infra=only:NoExecute                 MachineConfigPool infra spec.node.taints
node.cluster.x-k8s.io/uninitialized:NoSchedule   Poolboot
poolboot.io/unassigned:NoSchedule                Poolboot
`))
	})

	It("prints what Nodes of the control plane get beside their own", func() {
		path := clitest.WriteFile("pools.yaml", clitest.Pool("edge", "worker"), clitest.Pool("edge", "control-plane")+declared)
		Expect(clitest.ExpectSuccess(runPoolboot("labels", "-f", path, "--pool", "control-plane"))).To(Equal(`LABEL                            FROM
example.com/rack=r1              MachineConfigPool control-plane spec.node.labels
poolboot.io/pool=control-plane   MachineConfigPool control-plane spec.poolRole

TAINT                              FROM
example.com/infra=only:NoExecute   MachineConfigPool control-plane spec.node.taints
`))
	})

	It("prints the same as JSON", func() {
		out := clitest.ExpectSuccess(runPoolboot("labels", "-f", clitest.WriteFile("pools.yaml", infra), "--pool", "infra", "-o", "json"))
		var a nodeProperties
		Expect(json.Unmarshal([]byte(out), &a)).To(Succeed())
		Expect(a.Labels).To(HaveLen(4))
		Expect(a.Labels[0]).To(Equal(nodeProperty{Text: "example.com/rack=r1", From: []string{"MachineConfigPool infra spec.node.labels"}}))
		Expect(a.Taints).To(HaveLen(3))
		Expect(a.Taints[0]).To(Equal(nodeProperty{Text: "example.com/infra=only:NoExecute", From: []string{"MachineConfigPool infra spec.node.taints"}}))
	})

	It("accepts OpenShift's pools", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("labels", "-f", clitest.WriteFile("pools.yaml", clitest.OpenShiftInfra), "--pool", "infra"))).To(
			And(ContainSubstring("\nkubernetes.io/os=linux "), ContainSubstring("\nnode-role.kubernetes.io/infra= "), ContainSubstring("\npoolboot.io/pool=infra ")))

		By("adding the built-in pool worker, which every OpenShift cluster has")
		r := runPoolboot("labels", "-f", clitest.WriteFile("pools.yaml", clitest.OpenShiftInfra), "--pool", "worker")
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"worker\" is added as OpenShift's built-in pool, which the files do not contain: MachineConfigPool \"infra\" inherits from it\n"))
		Expect(r.Out).To(ContainSubstring("\nnode-role.kubernetes.io/worker= "))

		worker := strings.Replace(clitest.OpenShiftInfra51, "role: infra", "role: worker", 1)
		r = runPoolboot("labels", "-f", clitest.WriteFile("configs.yaml", worker), "--pool", "worker")
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"worker\" is added as OpenShift's built-in pool, which the files do not contain: it selects MachineConfig \"51-infra\"\n"))
		Expect(r.Out).To(ContainSubstring("\nnode-role.kubernetes.io/worker= "))

		By("naming the selector that one without must have")
		clitest.ExpectError(runPoolboot("labels", "-f", clitest.WriteFile("pools.yaml", strings.Split(clitest.OpenShiftInfra, "spec:")[0]), "--pool", "infra"), 2,
			`MachineConfigPool "infra": spec.nodeSelector: is empty and would match nothing: set node-role.kubernetes.io/infra: "" in its matchLabels`)
	})

	DescribeTable("exits with 2 when no Node can be registered in the pool",
		func(more string, why ...string) {
			clitest.ExpectError(runPoolboot("labels", "-f", clitest.WriteFile("pools.yaml", clitest.Pool("edge", "worker"), clitest.Pool("edge", "gpu"), clitest.Pool("edge", "infra")+more), "--pool", "infra"),
				2, why...)
		},
		Entry("a selector that requires no label", "  nodeSelector: {matchExpressions: [{key: site, operator: NotIn, values: [far]}]}",
			`MachineConfigPool "infra": spec.nodeSelector.matchExpressions[0]: site NotIn [far]`, "add a label that a Node must have"),
		Entry("an empty selector", "  nodeSelector: {}", `MachineConfigPool "infra": spec.nodeSelector: is empty and would match nothing: set node-role.kubernetes.io/infra: "" in its matchLabels`),
		Entry("labels that move the Node out of the pool", "  node: {labels: {node-role.kubernetes.io/infra: other}}", "spec.node.labels"),
		Entry("labels of another pool", `  node: {labels: {node-role.kubernetes.io/gpu: ""}}`, "gpu and infra", "change its nodeSelector or node.labels"),
		Entry("another value of the pool label", "  node: {labels: {poolboot.io/pool: other}}", "poolboot.io/pool has different values"),
		Entry("an invalid taint", "  node: {taints: [{key: a, effect: Never}]}", "effect: must be NoSchedule"),
	)

	It("refuses an invalid command line", func() {
		path := clitest.WriteFile("pools.yaml", infra)
		clitest.ExpectError(runPoolboot("labels", "-f", path), 1, "set --pool\n")
		clitest.ExpectError(runPoolboot("labels", "--pool", "infra"), 1, "set --filename\n")
		clitest.ExpectError(runPoolboot("labels", "-f", path, "--pool", "gpu"), 1, `the files contain no MachineConfigPool of role "gpu"`)
		clitest.ExpectError(runPoolboot("labels", "-f", path, "--pool", "master"), 1, "--pool master: the role of the control plane's pool is control-plane")
		clitest.ExpectError(runPoolboot("labels", "-f", path, "--pool", "infra", "-o", "xml"), 1, "--output xml is not known: use json, yaml or wide")
	})
})
