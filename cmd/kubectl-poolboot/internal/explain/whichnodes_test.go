package explain

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("which of several Nodes", func() {
	pools := []string{clitest.Pool("edge", "worker"), clitest.Pool("edge", "infra"), clitest.Pool("edge", "storage")}
	node := func(name string, roles ...string) string {
		var labels []string
		for _, role := range roles {
			labels = append(labels, "node-role.kubernetes.io/"+role+`: ""`)
		}
		return strings.Replace(nodeLabeled("{"+strings.Join(labels, ", ")+"}"), "name: n1", "name: "+name, 1)
	}
	nodes := []string{node("a", "control-plane"), node("b", "control-plane", "infra"), node("c", "worker"), node("d", "infra", "worker"), node("e", "gpu")}

	It("prints a table with the reason when a Node is in no pool", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", clitest.WriteFile("nodes.yaml", nodes...)))).To(Equal(
			"NODE   POOL     WHY\n" +
				"a      <none>   control plane\n" +
				"b      <none>   control plane; ignored custom pools: infra\n" +
				"c      worker   node-role.kubernetes.io/worker=\n" +
				"d      infra    node-role.kubernetes.io/infra=\n" +
				"e      <none>   no pool selects its labels\n"))
	})

	It("prints JSON for scripts", func() {
		Expect(clitest.ExpectSuccess(runWithInput(strings.Join(nodes, "\n---\n"), "which", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", "-", "-o", "json"))).To(MatchJSON(`[
			{"node":"a","pool":"","why":"control plane"},
			{"node":"b","pool":"","why":"control plane; ignored custom pools: infra"},
			{"node":"c","pool":"worker","why":"node-role.kubernetes.io/worker="},
			{"node":"d","pool":"infra","why":"node-role.kubernetes.io/infra="},
			{"node":"e","pool":"","why":"no pool selects its labels"}]`))
	})

	It("exits with 2, after the table, when a Node matches several custom pools", func() {
		r := runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", clitest.WriteFile("nodes.yaml", node("one", "infra", "storage"), node("two", "worker")))
		Expect(r.Code).To(Equal(2), r.ErrOut)
		Expect(r.Out).To(And(ContainSubstring("one    <none>   the labels belong to the pools infra and storage"), ContainSubstring("two    worker")))
		Expect(r.ErrOut).To(ContainSubstring(`nodes.yaml: document 1: line 3: Node "one": the labels belong`))
	})
})
