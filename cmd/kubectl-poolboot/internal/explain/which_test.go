package explain

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// nodeLabeled is a Node with labels in YAML's flow style.
func nodeLabeled(labels string) string {
	return "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels: " + labels + "\nspec: {aFieldOfTomorrow: true}\n"
}

var _ = Describe("which", func() {
	theirs := []string{clitest.OpenShiftMaster, clitest.OpenShiftWorker, clitest.OpenShiftInfra}
	ours := []string{clitest.Pool("edge", "worker"), clitest.Pool("edge", "infra"), clitest.Pool("edge", "storage")}

	DescribeTable("prints the pool",
		func(pools []string, labels, answer string) {
			pools = []string{clitest.WriteFile("pools.yaml", pools...)}
			Expect(clitest.ExpectSuccess(runPoolboot("which", "--pools", pools[0], "--labels", labels, "-o", "json"))).To(MatchJSON(answer))
		},
		Entry("worker", theirs, clitest.RoleLabels("worker"), `{"pool":"worker","why":"node-role.kubernetes.io/worker="}`),
		Entry("worker and infra: infra", theirs, clitest.RoleLabels("worker", "infra"), `{"pool":"infra","why":"node-role.kubernetes.io/infra="}`),
		Entry("infra only", theirs, clitest.RoleLabels("infra"), `{"pool":"infra","why":"node-role.kubernetes.io/infra="}`),
		Entry("infra without a pool, labeled worker: worker", theirs[:2], clitest.RoleLabels("worker", "infra"), `{"pool":"worker","why":"node-role.kubernetes.io/worker="}`),
		Entry("infra without a pool: unmanaged", theirs[:2], clitest.RoleLabels("infra"), `{"pool":"","why":"no pool selects its labels"}`),
		Entry("no label: unmanaged", theirs, "", `{"pool":"","why":"no pool selects its labels"}`),
		Entry("another value than the selector's: unmanaged", theirs, "node-role.kubernetes.io/infra=yes", `{"pool":"","why":"no pool selects its labels"}`),
		Entry("master", theirs, clitest.RoleLabels("master"), `{"pool":"control-plane","why":"control plane"}`),
		Entry("control plane that is a worker too", theirs, clitest.RoleLabels("control-plane", "worker"), `{"pool":"control-plane","why":"control plane"}`),
		Entry("control plane with the labels of a custom pool", theirs, clitest.RoleLabels("control-plane", "infra"), `{"pool":"control-plane","why":"control plane; ignored custom pools: infra"}`),
		Entry("control plane without its pool", theirs[1:], clitest.RoleLabels("control-plane"), `{"pool":"","why":"control plane"}`),
		Entry("Poolboot's pool of the control plane", []string{clitest.Pool("edge", "control-plane")}, clitest.RoleLabels("control-plane"), `{"pool":"control-plane","why":"control plane"}`),
		Entry("Windows: unmanaged", theirs, "kubernetes.io/os=windows,"+clitest.RoleLabels("worker"), `{"pool":"","why":"no pool selects its labels"}`),
		Entry("Linux", theirs, "kubernetes.io/os=linux,"+clitest.RoleLabels("worker"), `{"pool":"worker","why":"node-role.kubernetes.io/worker="}`),
		Entry("Poolboot's pool with its default selector", ours, clitest.RoleLabels("worker", "storage"), `{"pool":"storage","why":"node-role.kubernetes.io/storage="}`),
		Entry("pools of both kinds", append([]string{ours[2]}, theirs...), clitest.RoleLabels("worker", "storage"), `{"pool":"storage","why":"node-role.kubernetes.io/storage="}`),
	)

	It("prints only the role without -o", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", theirs...), "--labels", clitest.RoleLabels("infra")))).To(Equal("infra\n"))
	})

	DescribeTable("prints only a note when there is no role",
		func(labels, note string) {
			Expect(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", ours...), "--labels", labels)).To(Equal(clitest.Result{ErrOut: note + "\n"}))
		},
		Entry("unmanaged", clitest.RoleLabels("gpu"), "note: the Node is in no pool: no pool selects its labels"),
		Entry("control plane", clitest.RoleLabels("master"), "note: the Node is in no pool: control plane"),
	)

	It("notes that OpenShift's custom pool without a node selector selects no Node", func() {
		pools := clitest.WriteFile("pools.yaml", clitest.OpenShiftWorker, strings.Split(clitest.OpenShiftInfra, "  nodeSelector:")[0])
		r := runPoolboot("which", "--pools", pools, "--labels", clitest.RoleLabels("infra"))
		Expect(r.Code).To(BeZero())
		Expect(r.Out).To(BeEmpty())
		Expect(r.ErrOut).To(And(
			MatchRegexp(`note: \S+pools.yaml: document 2: line \d+: MachineConfigPool "infra": spec.nodeSelector: without requirements it selects no Node, as in OpenShift\n`),
			HaveSuffix("note: the Node is in no pool: no pool selects its labels\n")))
	})

	It("gives OpenShift's pool worker the node selector that OpenShift's operator sets", func() {
		pools := clitest.WriteFile("pools.yaml", strings.Split(clitest.OpenShiftWorker, "spec:")[0]+"spec: {paused: true}\n")
		r := runPoolboot("which", "--pools", pools, "--labels", clitest.RoleLabels("worker"))
		Expect(r.Out).To(Equal("worker\n"))
		Expect(r.ErrOut).To(MatchRegexp(`note: \S+pools.yaml: document 1: line \d+: MachineConfigPool "worker": the labels and spec.machineConfigSelector and ` +
			`spec.nodeSelector of OpenShift's built-in pool are added, which the files do not contain\n`))
	})

	It("notes the custom pools that also match a control plane Node", func() {
		r := runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", ours...), "--labels", clitest.RoleLabels("master", "infra", "storage"), "-o", "json")
		Expect(clitest.ExpectSuccess(r)).To(MatchJSON(`{"pool":"","why":"control plane; ignored custom pools: infra and storage"}`))
	})

	DescribeTable("exits with 2 and the reason when two custom pools match",
		func(output ...string) {
			args := append([]string{"which", "--pools", clitest.WriteFile("pools.yaml", ours...), "--labels", clitest.RoleLabels("storage", "worker", "infra")}, output...)
			clitest.ExpectError(runPoolboot(args...), 2, "infra and storage", "remove the labels of all but one")
		},
		Entry("as text"), Entry("as JSON", "-o", "json"),
	)

	Describe("of a Node", func() {
		infra := nodeLabeled(`{node-role.kubernetes.io/infra: "", node-role.kubernetes.io/worker: ""}`)
		list := `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"node-role.kubernetes.io/worker":""}}}]}`

		DescribeTable("reads its labels",
			func(node, role string) {
				pools := clitest.WriteFile("pools.yaml", theirs...)
				Expect(clitest.ExpectSuccess(runPoolboot("which", "--pools", pools, "--node", clitest.WriteFile("node", node)))).To(Equal(role + "\n"))
				Expect(clitest.ExpectSuccess(runWithInput(node, "which", "--pools", pools, "--node", "-"))).To(Equal(role + "\n"))
			},
			Entry("from YAML", infra, "infra"),
			Entry("from a list", list, "worker"),
			Entry("from a list of Nodes", `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"labels":{"node-role.kubernetes.io/infra":""}}}]}`, "infra"),
		)

		It("refuses a file with several", func() {
			clitest.ExpectError(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", theirs...), "--node", clitest.WriteFile("node", infra, list)), 1, "contains 2 Nodes, and must contain one")
		})
		It("refuses a file without one", func() {
			clitest.ExpectError(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", theirs...), "--node", clitest.WriteFile("node", clitest.OpenShiftWorker)), 1, "contains 0 Nodes")
		})
		It("refuses to read standard input twice", func() {
			clitest.ExpectError(runWithInput(infra, "which", "--pools", "-", "--node", "-"), 1, "standard input (-) can be read only once")
		})
	})

	It("names a label that Kubernetes does not allow", func() {
		clitest.ExpectError(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", ours...), "--labels", "bad key=x"), 1, `Kubernetes allows: Invalid value: "bad key"`)
	})

	It("prints no role, and a note, when there is no pool", func() {
		Expect(runPoolboot("which", "--pools", clitest.WriteFile("empty.yaml"), "--labels", clitest.RoleLabels("worker"), "-o", "yaml")).
			To(Equal(clitest.Result{Out: "pool: \"\"\nwhy: no pool selects its labels\n", ErrOut: "note: the files contain no MachineConfigPool\n"}))
	})

	It("reports a malformed selector", func() {
		broken := strings.Replace(clitest.OpenShiftInfra, "matchLabels:\n      node-role.kubernetes.io/infra: \"\"", "matchExpressions: [{key: a, operator: Near}]", 1)
		clitest.ExpectError(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", clitest.OpenShiftWorker, broken), "--labels", clitest.RoleLabels("worker")), 1,
			`MachineConfigPool "infra": spec.nodeSelector`)
	})

	DescribeTable("refuses an invalid command line",
		func(why string, args ...string) {
			clitest.ExpectError(runPoolboot(append([]string{"which", "--pools", clitest.WriteFile("pools.yaml", theirs...)}, args...)...), 1, why)
		},
		Entry("neither labels nor Node", "the files contain no Node: set --labels, --node or --nodes"),
		Entry("labels and Node", "--labels and --node exclude each other", "--labels", "a=b", "--node", "-"),
		Entry("an unknown flag", "see 'kubectl poolboot which --help'", "--label", "a=b"),
		Entry("a label without a value", "labels must be KEY=VALUE,...", "--labels", "infra"),
		Entry("a label that Kubernetes does not allow", "--labels", "--labels", "in fra="),
		Entry("an unknown output", "--output xml is not known: use json, yaml or wide", "--labels", "a=b", "-o", "xml"),
		Entry("a file that does not exist", "nowhere.yaml: no such file", "--labels", "a=b", "nowhere.yaml"),
		Entry("a file without a Node", "nowhere.yaml: no such file", "--node", "nowhere.yaml"),
	)

	It("reads pools and Nodes from the same files", func() {
		r := runPoolboot("which", "-f", clitest.WriteFile("all.yaml", append(slices.Clone(theirs), nodeLabeled(`{node-role.kubernetes.io/infra: ""}`))...), "-o", "json")
		Expect(clitest.ExpectSuccess(r)).To(MatchJSON(`[{"node":"n1","pool":"infra","why":"node-role.kubernetes.io/infra="}]`))
	})

	It("refuses to run without pools", func() {
		clitest.ExpectError(runPoolboot("which", "--labels", "a=b"), 1, "set --filename or --pools\n")
	})
})
