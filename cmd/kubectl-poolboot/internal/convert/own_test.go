package convert

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert, of objects of Poolboot", func() {
	const ours = "apiVersion: poolboot.io/v1alpha1\nkind: "
	run := func(documents ...string) clitest.Result {
		return runPoolboot("convert", "-f", clitest.WriteFile("a.yaml", documents...), "--cluster", "infra-1", "-n", "edge")
	}

	It("keeps them, in an order in which they can be applied, with a note", func() {
		config := ours + "MachineConfig\nmetadata:\n  name: 50-a\n  namespace: edge\n  uid: b\nspec:\n  kernelArguments:\n  - nosmt\n"
		gpu := ours + "MachineConfigPool\nmetadata:\n  name: gpu\n  namespace: other\nspec:\n  clusterName: other\n  poolRole: gpu\n"
		template := "apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1\nkind: PoolbootConfigTemplate\nmetadata:\n  name: a\n  namespace: edge\nspec:\n  template:\n    spec:\n      join:\n        type: Kubeadm\n"
		r := run(template, gpu, config, clitest.OpenShiftWorker)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).To(HavePrefix(config + "---\n"))
		Expect(r.Out).To(HaveSuffix("  poolRole: worker\n---\n" + gpu + "---\n" + template))
		Expect(r.ErrOut).To(ContainSubstring(`note: MachineConfigPool "gpu" is kept: it is an object of Poolboot` + "\n"))
	})

	It("gives those without a namespace that of the others", func() {
		Expect(run(clitest.Pool("infra-1", "gpu")).Out).To(ContainSubstring("metadata:\n  name: gpu\n  namespace: edge\n"))
	})

	It("prints nothing else of its own result", func() {
		r := run(clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(run(r.Out).Out).To(Equal(r.Out))
	})

	It("adds no pool worker if there is one of Poolboot, and does not change that one", func() {
		r := run(clitest.Pool("infra-1", "worker"), clitest.OpenShiftInfra, newMachineConfiguration("nodeDisruptionPolicy: {units: [{name: a.service, actions: [{type: None}]}]}"))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(strings.Count(r.Out, "poolRole: worker")).To(Equal(1))
		Expect(r.Out).NotTo(ContainSubstring("a.service"))
		Expect(r.ErrOut).To(And(Not(ContainSubstring("is added")),
			ContainSubstring(`MachineConfiguration "cluster": it is left out: the pool worker of the files is an object of Poolboot: set disruptionPolicy and diskPolicy in its spec.updates`)))
	})

	DescribeTable("refuses what Poolboot would refuse to store",
		func(document, why string) {
			r := run(clitest.OpenShiftInfra, document)
			Expect(r.Code).To(Equal(1))
			Expect(r.Out).To(BeEmpty())
			Expect(r.ErrOut).To(ContainSubstring(why))
		},
		Entry("a MachineConfig with a wrong value", ours+"MachineConfig\nmetadata: {name: 50-a}\nspec: {kernelType: fast}", `MachineConfig "50-a": spec.kernelType: Unsupported value`),
		Entry("a pool with a wrong value", clitest.Pool("infra-1", "gpu")+"  maxUnavailable: many\n", `MachineConfigPool "gpu": spec.maxUnavailable`),
		Entry("a pool of the Nodes of a converted pool", clitest.Pool("infra-1", "gpu")+"  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: \"\"}}\n", `MachineConfigPool "gpu": spec.nodeSelector`),
		Entry("the name of a converted object", clitest.Pool("infra-1", "infra"), `MachineConfigPool "infra" is given twice: remove one`),
	)
})
