package rollout

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("plan of files gives the reason", func() {
	planning := func(pool string, nodes ...string) clitest.Result {
		GinkgoHelper()
		return runRollout(strings.Join(nodes, "---\n"), "plan", "--pools", clitest.WriteFile("pools.yaml", pool), "--nodes", "-")
	}
	// reasons returns the lines of the second table, without the pool.
	reasons := func(pool string, nodes ...string) (lines []string) {
		GinkgoHelper()
		_, table, _ := strings.Cut(clitest.ExpectSuccess(planning(pool, nodes...)), "WHY IT IS NOT NEXT\n")
		for _, line := range clitest.Rows(table) {
			lines = append(lines, strings.TrimPrefix(line, "infra "))
		}
		return lines
	}
	// without removes an annotation.
	without := func(annotations, key string) string {
		var kept []string
		for _, annotation := range strings.Split(annotations, ", ") {
			if !strings.HasPrefix(annotation, key+":") {
				kept = append(kept, annotation)
			}
		}
		return strings.Join(kept, ", ")
	}
	const toldConfig, currentConfig = "poolboot.io/desired-config", "poolboot.io/current-config"
	notReady := strings.NewReplacer(`{type: Ready, status: "True"}`, `{type: Ready, status: Unknown, message: "Kubelet stopped\nposting node status."}`)

	DescribeTable("why a host is left alone", func(node, reason string) {
		Expect(reasons(withStatus("infra", "new", "maxUnavailable: 2"), node)).To(ConsistOf("a " + reason))
	},
		Entry("a missing annotation, although it has done what it was told", newNode("a", infra, 1, without(ours("a", "old", "a", "a", "Done"), toldConfig)),
			"its annotation "+toldConfig+" is missing, so it is not known which config it was told to run: use the Node as kubectl get -o yaml prints it"),
		Entry("a revision that is none", newNode("a", infra, 1, strings.Replace(ours("b", "new", "a", "b", "Done"), strings.Repeat("a", 64), "v2\\u001b", 1)),
			`its annotation poolboot.io/current-revision is "v2": use a revision, which has 64 hex digits in lower case`),
		Entry("a state that does not exist", newNode("a", infra, 1, ours("b", "new", "a", "b", "done")),
			`its annotation poolboot.io/update-state is "done": use Done, Draining, Applying, Rebooting, Verifying, Degraded or Unreconcilable`),
		Entry("no answer", newNode("a", infra, 1, ours("b", "new", "a", "a", "Done")), "it was told what to run, and has not answered"),
		Entry("an answer that it can't begin yet", newNode("a", infra, 1, ours("b", "new", "a", "a", "Done"), `poolboot.io/update-reason: "file /etc/web: files.example: not found"`),
			"its agent cannot begin, which it retries: file /etc/web: files.example: not found"),
		Entry("an update that was not begun", newNode("a", infra, 1, without(ours("b", "new", "a", "b", "Draining"), "poolboot.io/begun-revision")),
			"it reports Draining for an update that has ended or was not begun"),
		Entry("an agent that has stopped", strings.Replace(newNode("a", infra, 1, ours("a", "old", "a", "a", "Done"), "poolboot.io/agent-boot: stopped"), "conditions:", "nodeInfo: {bootID: boot-1}, conditions:", 1),
			"its agent does not run: it has stopped"),
		Entry("a cordoned Node", newNode("a", infra, 1, ours("a", "old", "a", "a", "Done"))+"spec: {unschedulable: true}\n", "it is cordoned: kubectl uncordon a"),
		Entry("a Node that was cordoned for the update", newNode("a", infra, 1, ours("a", "old", "a", "a", "Done"), `poolboot.io/cordoned-for-update: "true"`)+
			"spec: {unschedulable: true}\n", "it is cordoned for its update"),
		Entry("a Node that is not Ready", notReady.Replace(newNode("a", infra, 1, ours("a", "old", "a", "a", "Done"))), "its Node is not Ready: Kubelet stopped posting node status."),
		Entry("a Node without conditions", strings.Replace(newNode("a", infra, 1, ours("a", "old", "a", "a", "Done")), `{type: Ready, status: "True"}`, "", 1),
			"its Node is not Ready: it has no condition Ready"),
		Entry("a Node that is being deleted", strings.Replace(newNode("a", infra, 1, ours("a", "old", "a", "a", "Done")), "  uid:", "  deletionTimestamp: 2026-01-02T00:00:00Z\n  uid:", 1),
			"its Node is being deleted"),
		Entry("a failed update", newNode("a", infra, 1, ours("b", "new", "a", "b", "Degraded"), `poolboot.io/update-reason: "disk full"`), "its update failed: disk full"),
		Entry("a failed update without a reason", newNode("a", infra, 1, ours("b", "new", "a", "b", "Degraded")), "its update failed: its agent reports no reason"),
		Entry("an impossible update", newNode("a", infra, 1, ours("b", "new", "a", "b", "Unreconcilable"), "poolboot.io/update-reason: fips"),
			"its update is not possible on a running host: fips"),
	)

	It("for no host that has done what it was told, if the annotation of the config that it runs says which", func() {
		node := func(name, runs string) string {
			return newNode(name, infra, 1, without(ours("a", "old", "a", "a", "Done"), toldConfig), currentConfig+": "+runs)
		}
		Expect(clitest.ExpectSuccess(planning(withStatus("infra", "new"), node("a", "old"), node("b", "new")))).To(And(HaveSuffix(" a\n"), Not(ContainSubstring("WHY"))))
	})

	It("and which hosts hold the places", func() {
		nodes := []string{newNode("n1", infra, 1, ours("a", "old", "a", "a", "Done")), newNode("n3", infra, 3, ours("a", "old", "a", "a", "Done")) + "spec: {unschedulable: true}\n",
			newNode("n4", infra, 4, ours("b", "new", "a", "b", "Degraded"))}
		Expect(reasons(withStatus("infra", "new", "maxUnavailable: 2"), nodes...)).To(ContainElement(
			"n1 2 of the pool's hosts can be unavailable at a time, and these hold the places: n3 (it is cordoned), n4 (its update failed)"))
		for i := 5; i < 14; i++ {
			nodes = append(nodes, newNode(fmt.Sprintf("n%02d", i), infra, i, ours("b", "new", "a", "b", "Rebooting")))
		}
		Expect(reasons(withStatus("infra", "new", "maxUnavailable: 2"), nodes...)).To(ContainElement(HaveSuffix("n07 (it is in an update) and 6 more")))
	})

	It("and that a Node without a failure domain is last", func() {
		node := func(name, rack string) string {
			return strings.Replace(newNode(name, infra, 1, ours("a", "old", "a", "a", "Done")), "labels: {", "labels: {"+rack, 1)
		}
		pool := withStatus("infra", "new", "maxUnavailable: 3", "updates: {failureDomainLabel: rack}")
		Expect(reasons(pool, node("a", ""), node("b", "rack: r1, "))).To(ConsistOf("a its Node has no label rack, so it is last, and others are unavailable or first: rack=r1 (b)"))
		Expect(reasons(pool, node("a", "")+"spec: {unschedulable: true}\n", node("b", "rack: r1, "))).To(ContainElement(
			"b it is in the failure domain rack=r1, and others are unavailable or first: no label rack (a)"))
	})
})
