package main

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// roles are the labels of a Node with roles, as kubectl label takes them.
func roles(names ...string) string {
	given := make([]string, len(names))
	for i, name := range names {
		given[i] = "node-role.kubernetes.io/" + name + "="
	}
	return strings.Join(given, ",")
}

// nodeWith is a Node with labels in YAML's flow style.
func nodeWith(labels string) string {
	return "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels: " + labels + "\nspec: {aFieldOfTomorrow: true}\n"
}

var _ = Describe("which", func() {
	theirs := []string{openshiftMaster, openshiftWorker, openshiftInfra}
	ours := []string{ownPool("edge", "worker"), ownPool("edge", "infra"), ownPool("edge", "storage")}

	DescribeTable("says the pool",
		func(pools []string, labels, answer string) {
			pools = []string{file("pools.yaml", pools...)}
			Expect(answered(poolboot("which", "--pools", pools[0], "--labels", labels, "-o", "json"))).To(Equal(answer + "\n"))
		},
		Entry("worker", theirs, roles("worker"), `{"pool":"worker"}`),
		Entry("worker and infra: infra", theirs, roles("worker", "infra"), `{"pool":"infra"}`),
		Entry("infra only", theirs, roles("infra"), `{"pool":"infra"}`),
		Entry("infra without a pool, labelled worker: worker", theirs[:2], roles("worker", "infra"), `{"pool":"worker"}`),
		Entry("infra without a pool: unmanaged", theirs[:2], roles("infra"), `{"pool":null}`),
		Entry("no label: unmanaged", theirs, "", `{"pool":null}`),
		Entry("another value than the selector's: unmanaged", theirs, "node-role.kubernetes.io/infra=yes", `{"pool":null}`),
		Entry("master", theirs, roles("master"), `{"pool":null,"controlPlane":true}`),
		Entry("control plane that is a worker too", theirs, roles("control-plane", "worker"), `{"pool":null,"controlPlane":true}`),
		Entry("Windows: unmanaged", theirs, "kubernetes.io/os=windows,"+roles("worker"), `{"pool":null}`),
		Entry("Linux", theirs, "kubernetes.io/os=linux,"+roles("worker"), `{"pool":"worker"}`),
		Entry("Poolboot's pool by its default selector", ours, roles("worker", "storage"), `{"pool":"storage"}`),
		Entry("pools of both kinds", append([]string{ours[2]}, theirs...), roles("worker", "storage"), `{"pool":"storage"}`),
		Entry("OpenShift's pool without a selector matches nothing", []string{strings.Split(openshiftInfra, "  nodeSelector:")[0]},
			roles("infra"), `{"pool":null}`),
	)

	It("prints only the role without -o", func() {
		Expect(answered(poolboot("which", "--pools", file("pools.yaml", theirs...), "--labels", roles("infra")))).To(Equal("infra\n"))
	})

	DescribeTable("prints nothing but a note when there is no role to print",
		func(labels, note string) {
			Expect(poolboot("which", "--pools", file("pools.yaml", theirs...), "--labels", labels)).To(Equal(result{errOut: note + "\n"}))
		},
		Entry("unmanaged", roles("gpu"), "note: unmanaged: in no pool"),
		Entry("control plane", roles("master"), "note: a control plane, which is in no pool"),
	)

	It("notes the custom pools that a control plane can't be in", func() {
		r := poolboot("which", "--pools", file("pools.yaml", ours...), "--labels", roles("master", "infra", "storage"), "-o", "json")
		Expect(r).To(Equal(result{out: `{"pool":null,"controlPlane":true}` + "\n",
			errOut: "note: a control plane can't be in the pools that its labels ask for: infra and storage\n"}))
	})

	DescribeTable("exits with 2 and the reason when two custom pools match",
		func(output ...string) {
			args := append([]string{"which", "--pools", file("pools.yaml", ours...), "--labels", roles("storage", "worker", "infra")}, output...)
			refused(poolboot(args...), 2, "infra and storage", "remove the labels of all but one")
		},
		Entry("as text"), Entry("as JSON", "-o", "json"),
	)

	Describe("of a Node", func() {
		infra := nodeWith(`{node-role.kubernetes.io/infra: "", node-role.kubernetes.io/worker: ""}`)
		list := `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"node-role.kubernetes.io/worker":""}}}]}`

		DescribeTable("reads its labels",
			func(node, role string) {
				pools := file("pools.yaml", theirs...)
				Expect(answered(poolboot("which", "--pools", pools, "--node", file("node", node)))).To(Equal(role + "\n"))
				Expect(answered(poolbootReading(node, "which", "--pools", pools, "--node", "-"))).To(Equal(role + "\n"))
			},
			Entry("out of YAML", infra, "infra"),
			Entry("out of a list", list, "worker"),
			Entry("out of a list of Nodes", `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"labels":{"node-role.kubernetes.io/infra":""}}}]}`, "infra"),
		)

		It("refuses a file with several", func() {
			refused(poolboot("which", "--pools", file("pools.yaml", theirs...), "--node", file("node", infra, list)), 1, "holds 2 Nodes, and must hold one")
		})
		It("refuses a file without one", func() {
			refused(poolboot("which", "--pools", file("pools.yaml", theirs...), "--node", file("node", openshiftWorker)), 1, "holds 0 Nodes")
		})
		It("refuses to read standard input twice", func() {
			refused(poolbootReading(infra, "which", "--pools", "-", "--node", "-"), 1, "standard input (-) can be read only once")
		})
	})

	It("has an answer, and a note, when there is no pool", func() {
		Expect(poolboot("which", "--pools", file("empty.yaml"), "--labels", roles("worker"), "-o", "json")).
			To(Equal(result{out: "{\"pool\":null}\n", errOut: "note: the files hold no MachineConfigPool\n"}))
	})

	It("does not guess past a malformed selector", func() {
		broken := strings.Replace(openshiftInfra, "matchLabels:\n      node-role.kubernetes.io/infra: \"\"", "matchExpressions: [{key: a, operator: Near}]", 1)
		refused(poolboot("which", "--pools", file("pools.yaml", openshiftWorker, broken), "--labels", roles("worker")), 1,
			`MachineConfigPool "infra": spec.nodeSelector`)
	})

	DescribeTable("refuses a wrong command line",
		func(why string, args ...string) {
			refused(poolboot(append([]string{"which", "--pools", file("pools.yaml", theirs...)}, args...)...), 1, why)
		},
		Entry("neither labels nor Node", "[labels node nodes] is required"),
		Entry("labels and Node", "[labels node nodes]", "--labels", "a=b", "--node", "-"),
		Entry("an unknown flag", "see 'kubectl poolboot which --help'", "--label", "a=b"),
		Entry("a label without a value", "labels must be KEY=VALUE,...", "--labels", "infra"),
		Entry("a label that Kubernetes does not allow", "--labels", "--labels", "in fra="),
		Entry("an unknown output", "--output wide is not known: use json", "--labels", "a=b", "-o", "wide"),
		Entry("a file that is not there", "nowhere.yaml: no such file", "--labels", "a=b", "nowhere.yaml"),
		Entry("a Node that is not there", "nowhere.yaml: no such file", "--node", "nowhere.yaml"),
	)

	It("refuses to run without pools", func() {
		refused(poolboot("which", "--labels", "a=b"), 1, `"pools" not set`)
	})
})
