package which

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
		return strings.Replace(newNode("{"+strings.Join(labels, ", ")+"}"), "name: n1", "name: "+name, 1)
	}
	nodes := []string{node("a", "control-plane"), node("b", "control-plane", "infra"), node("c", "worker"), node("d", "infra", "worker"), node("e", "gpu")}

	It("prints a table with the reason when a Node is in no pool", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", clitest.WriteFile("nodes.yaml", nodes...)))).To(Equal(
			"NODE   POOL     NOTE\n" +
				"a      <none>   control plane\n" +
				"b      <none>   control plane; ignored custom pools: infra\n" +
				"c      worker   \n" +
				"d      infra    \n" +
				"e      <none>   unmanaged\n"))
	})

	It("prints JSON for scripts", func() {
		Expect(clitest.ExpectSuccess(runWithInput(strings.Join(nodes, "\n---\n"), "which", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", "-", "-o", "json"))).To(MatchJSON(`[
			{"node":"a","pool":null,"controlPlane":true},
			{"node":"b","pool":null,"controlPlane":true,"unsupported":["infra"]},
			{"node":"c","pool":"worker"},
			{"node":"d","pool":"infra"},
			{"node":"e","pool":null}]`))
	})

	It("exits with 2, after the table, when a Node matches several custom pools", func() {
		r := runPoolboot("which", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", clitest.WriteFile("nodes.yaml", node("one", "infra", "storage"), node("two", "worker")))
		Expect(r.Code).To(Equal(2), r.ErrOut)
		Expect(r.Out).To(And(ContainSubstring("one    <none>   conflict: several custom pools match: infra and storage"), ContainSubstring("two    worker")))
		Expect(r.ErrOut).To(ContainSubstring(`nodes.yaml: document 1: line 3: Node "one": the labels belong`))
	})
})
