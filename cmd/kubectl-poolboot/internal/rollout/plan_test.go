package rollout

import (
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// newNode returns a Node with roles and annotations, created so many minutes after the others.
func newNode(name string, roles []string, minute int, annotations ...string) string {
	labels := make([]string, len(roles))
	for i, role := range roles {
		labels[i] = "node-role.kubernetes.io/" + role + `: ""`
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n  uid: %[1]s\n  creationTimestamp: 2026-01-01T00:%02d:00Z\n  labels: {%s}\n  annotations: {%s}\nstatus: {conditions: [{type: Ready, status: \"True\"}]}\n",
		name, minute, strings.Join(labels, ", "), strings.Join(annotations, ", "))
}

// ours returns Poolboot's annotations of a host that was told to begin an update to a rendered config. The revisions
// are a and b.
func ours(told, config, current, target, state string) string {
	revision := func(letter string) string { return `"` + strings.Repeat(letter, 64) + `"` }
	return fmt.Sprintf("poolboot.io/begun-revision: %[1]s, poolboot.io/desired-revision: %[1]s, poolboot.io/desired-config: %[2]s, poolboot.io/current-revision: %[3]s, "+
		"poolboot.io/update-revision: %[4]s, poolboot.io/update-state: %[5]s, poolboot.io/agent-version: v1, poolboot.io/report-version: '1'",
		revision(told), config, revision(current), revision(target), state)
}

// withStatus returns Poolboot's pool with the rendered config that it hands out.
func withStatus(role, configuration string, spec ...string) string {
	return clitest.Pool("edge", role) + "  " + strings.Join(append(spec, ""), "\n  ") + "\nstatus: {configuration: {name: " + configuration + "}}\n"
}

// noNode is the note about standard input without a Node.
const noNode = "note: --nodes -: it contains no Node\n"

var (
	infra  = []string{"worker", "infra"}
	worker = []string{"worker"}
)

var _ = Describe("plan of files", func() {
	planning := func(pools []string, nodes []string, args ...string) clitest.Result {
		GinkgoHelper()
		return runRollout(strings.Join(nodes, "---\n"), append([]string{"plan", "--pools", clitest.WriteFile("pools.yaml", pools...), "--nodes", "-"}, args...)...)
	}
	asJSON := func(pools []string, nodes ...string) string {
		GinkgoHelper()
		r := planning(pools, nodes, "-o", "json")
		if len(nodes) == 0 {
			Expect(r.ErrOut).To(Equal(noNode))
			r.ErrOut = ""
		}
		return clitest.ExpectSuccess(r)
	}
	pool := withStatus("infra", "new")
	waits, updates := ours("a", "old", "a", "a", "Done"), ours("b", "new", "a", "b", "Applying")

	It("prints each pool by its role, with lists that are never null", func() {
		r := planning([]string{clitest.OpenShiftMaster, pool, withStatus("worker", "new")}, nil, "-o", "json")
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"master\" of OpenShift is left out: kubectl poolboot convert makes one of Poolboot of it\n" + noNode))
		Expect(r.Out).To(Equal(`{
  "infra": {
    "maxUnavailable": 1,
    "unavailable": [],
    "capacity": 1,
    "next": [],
    "reason": "none waits for an update to new",
    "hosts": []
  },
  "worker": {
    "maxUnavailable": 1,
    "unavailable": [],
    "capacity": 1,
    "next": [],
    "reason": "none waits for an update to new",
    "hosts": []
  }
}
`))
	})

	It("counts a Node in its custom pool, and not in worker", func() {
		Expect(asJSON([]string{pool, withStatus("worker", "new")},
			newNode("a", infra, 1, waits), newNode("b", worker, 2, updates))).To(MatchJSON(
			`{"infra":{"maxUnavailable":1,"unavailable":[],"capacity":1,"next":["a"],"hosts":[]},"worker":{"maxUnavailable":1,"unavailable":["b"],"capacity":0,"next":[],"reason":"no other host waits for an update to new","hosts":[{"node":"b","message":"it is in an update: Applying"}]}}`))
	})

	DescribeTable("reads Nodes in any form", func(document string) {
		Expect(asJSON([]string{pool}, document)).To(MatchJSON(`{"infra":{"maxUnavailable":1,"unavailable":[],"capacity":1,"next":["a"],"hosts":[]}}`))
	},
		Entry("a document", newNode("a", infra, 1, waits)),
		Entry("a list", "apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(newNode("a", infra, 1, waits), "\n", "\n  ")),
		Entry("a list of Nodes in JSON", `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"a","labels":{"node-role.kubernetes.io/infra":""},"annotations":{`+
			`"poolboot.io/desired-revision":"`+strings.Repeat("a", 64)+`","poolboot.io/desired-config":"old","poolboot.io/current-revision":"`+strings.Repeat("a", 64)+
			`","poolboot.io/update-revision":"`+strings.Repeat("a", 64)+`","poolboot.io/update-state":"Done","poolboot.io/agent-version":"v1","poolboot.io/report-version":"1"}},"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`),
	)

	Describe("with Poolboot's annotations", func() {
		pools := []string{withStatus("infra", "new", "maxUnavailable: 2")}
		waiting := newNode("a", infra, 9, ours("a", "old", "a", "a", "Done"))

		It("prints the oldest hosts that run another config", func() {
			Expect(asJSON(pools, waiting, newNode("b", infra, 1, ours("b", "new", "b", "b", "Done")), newNode("c", infra, 3, ours("a", "old", "a", "a", "Done")),
				newNode("d", infra, 2, ours("a", "old", "a", "a", "Done")))).To(MatchJSON(`{"infra":{"maxUnavailable":2,"unavailable":[],"capacity":2,"next":["d","c"],"hosts":[{"node":"a","message":"others are first, by zone and age"}]}}`))
		})

		It("counts hosts in an update, those that have not answered, those whose update failed and those that are not Ready", func() {
			const counted = `{"infra":{"maxUnavailable":2,"unavailable":["b"],"capacity":1,"next":["a"],"hosts":[{"node":"b","message":"%s"}]}}`
			for node, why := range map[string]string{
				newNode("b", infra, 1, ours("b", "new", "a", "b", "Rebooting")):  "it is in an update: Rebooting",
				newNode("b", infra, 1, ours("b", "new", "a", "a", "Done")):       "it was told what to run, and has not answered",
				strings.Replace(waiting, `status: "True"`, `status: "False"`, 1): "its Node is not Ready",
				waiting + "spec: {unschedulable: true}\n":                        "it is cordoned: kubectl uncordon b",
			} {
				node = strings.ReplaceAll(node, "name: a", "name: b")
				Expect(asJSON(pools, waiting, node)).To(MatchJSON(fmt.Sprintf(counted, why)), node)
			}
			failed := newNode("b", infra, 1, ours("b", "new", "a", "b", "Degraded"))
			Expect(asJSON(pools, waiting, failed)).To(MatchJSON(fmt.Sprintf(counted, "its update failed: its agent reports no reason")))
			Expect(asJSON([]string{withStatus("infra", "new")}, waiting, failed)).To(MatchJSON(`{"infra":{"maxUnavailable":1,"unavailable":["b"],"capacity":0,"next":[],"reason":"1 of the pool's hosts can be unavailable at a time, and these hold the places: b (its update failed)","hosts":[{"node":"a","message":"1 of the pool's hosts can be unavailable at a time, and these hold the places: b (its update failed)"},{"node":"b","message":"its update failed: its agent reports no reason"}]}}`))
		})

		It("does not count a host that is told a newer config during its update as one that begins an update", func() {
			Expect(asJSON(pools, waiting, newNode("b", infra, 1, ours("b", "bad", "a", "b", "Applying")))).To(MatchJSON(`{"infra":{"maxUnavailable":2,"unavailable":["b"],"capacity":1,"next":["a"],"hosts":[{"node":"b","message":"it is in an update: Applying"}]}}`))
		})

		It("leaves hosts without an agent alone", func() {
			Expect(asJSON(pools, waiting, newNode("b", infra, 1))).To(MatchJSON(`{"infra":{"maxUnavailable":2,"unavailable":[],"capacity":2,"next":["a"],"hosts":[{"node":"b","message":"it runs no agent"}]}}`))
		})
	})

	It("prints no next host of a paused pool", func() {
		Expect(asJSON([]string{withStatus("infra", "new", "paused: true")}, newNode("a", infra, 1, waits))).To(MatchJSON(`{"infra":{"maxUnavailable":1,"unavailable":[],"capacity":1,"next":[],"reason":"the pool is paused: run kubectl poolboot rollout resume infra to hand out what it renders. Until then, its hosts keep what they run","hosts":[{"node":"a","message":"the pool is paused: run kubectl poolboot rollout resume infra to hand out what it renders. Until then, its hosts keep what they run"}]}}`))
	})

	It("prints a table, with the reason why hosts are not next", func() {
		Expect(clitest.ExpectSuccess(planning([]string{withStatus("infra", "new", "maxUnavailable: 2")}, []string{
			newNode("a", infra, 1, waits), newNode("b", infra, 2, waits),
			newNode("c", infra, 3, updates), newNode("d", infra, 4, ours("b", "new", "b", "b", "Done")),
		}))).To(Equal(`POOL    MAXUNAVAILABLE   UNAVAILABLE   CAPACITY   NEXT
infra   2                c             1          a

POOL    HOST   WHY IT IS NOT NEXT
infra   b      others are first, by zone and age
infra   c      it is in an update: Applying
`))
		Expect(clitest.ExpectSuccess(planning([]string{withStatus("infra", "new", "paused: true")}, []string{newNode("a", infra, 1, waits)}))).To(ContainSubstring("infra   a      the pool is paused: run kubectl poolboot rollout resume infra to hand out what it renders. Until then,"))
		Expect(clitest.ExpectSuccess(planning([]string{pool}, []string{newNode("a", infra, 1, ours("b", "new", "a", "b", "Degraded"), "poolboot.io/update-reason: full"), newNode("b", infra, 2, waits)}))).To(And(
			ContainSubstring("infra   1                a             0          <none>"), ContainSubstring("infra   a      its update failed: full"),
			ContainSubstring("infra   b      1 of the pool's hosts can be unavailable at a time, and these hold the places: a (its update failed)")))
		var many []string
		for _, name := range strings.Split("abcdefg", "") {
			many = append(many, newNode(name, infra, 1, updates))
		}
		Expect(clitest.ExpectSuccess(planning([]string{pool}, many))).To(ContainSubstring("infra   1                a, b, c, d, e and 2 more   0 "))
	})

	It("names the canaries that are next, and that the others wait for them, also after the manager has said so", func() {
		p := withStatus("infra", "new", "maxUnavailable: 2", "updates: {canary: {hosts: 1}}")
		said := strings.Replace(p, "status: {", `status: {conditions: [{type: UpdateGatesOpen, status: "False", reason: CanaryPending, message: they wait}], `, 1)
		for _, pool := range []string{p, said} {
			out := clitest.ExpectSuccess(planning([]string{pool}, []string{newNode("a", infra, 1, waits), newNode("b", infra, 2, waits)}))
			Expect(out).To(And(MatchRegexp(`infra +2 +<none> +2 +a\n`), ContainSubstring("infra   b      others wait for the canaries of the pool (spec.updates.canary), and 0 of 1 have completed their")))
		}
	})

	It("notes pools that roll out nothing, and Nodes that are in no pool", func() {
		r := planning([]string{clitest.Pool("edge", "infra")}, []string{newNode("a", infra, 1, waits), newNode("b", nil, 1), newNode("c", []string{"master"}, 1)}, "-o", "json")
		Expect(r.Code).To(BeZero())
		Expect(r.Out).To(MatchJSON(`{"infra":{"maxUnavailable":1,"unavailable":[],"capacity":1,"next":[],"reason":"MachineConfigPool \"infra\" has no status.configuration.name, the rendered config that its hosts should run","hosts":[]}}`))
		Expect(r.ErrOut).To(Equal("note: Node \"b\" is in no pool of the files\n"))
	})

	Describe("notes", func() {
		gates := []string{"updates:", "  gates:", "  - name: storage", "    objectRef: {apiVersion: apps/v1, kind: Deployment, name: store, namespace: edge}", "    expression: object.status.ready == true"}
		waiting := newNode("a", infra, 1, ours("a", "old", "a", "a", "Done"))

		It("gates, whose objects are not in the files", func() {
			r := planning([]string{withStatus("infra", "new", gates...)}, []string{waiting})
			Expect(r.ErrOut).To(Equal("note: the objects of the update gates of pool infra are not read from files, and its status has no condition UpdateGatesOpen: the answer is as if they were open\n"))
			Expect(r.Out).To(HaveSuffix(" a\n"))
			known := strings.Replace(withStatus("infra", "new", gates...), "status: {", `status: {conditions: [{type: UpdateGatesOpen, status: "False", reason: GateClosed, message: closed}], `, 1)
			Expect(clitest.ExpectSuccess(planning([]string{known}, []string{waiting}))).To(HaveSuffix(" a      closed\n"))
		})

		It("the control plane, whose state is not in the files, and says why no host of it is next", func() {
			node := newNode("cp-1", []string{"control-plane"}, 1, ours("a", "old", "a", "a", "Done"))
			p := withStatus("control-plane", "new")
			r := planning([]string{p}, []string{node})
			Expect(r.ErrOut).To(Equal("note: whether the control plane can be without a host is not read from files, and its status has no condition UpdateGatesOpen: the answer is as if it could\n"))
			Expect(r.Out).To(HaveSuffix(" cp-1\n"))
			known := strings.Replace(p, "status: {", `status: {conditions: [{type: UpdateGatesOpen, status: "False", reason: ControlPlaneNotReady, message: "Node cp-2 is not Ready"}], `, 1)
			out := clitest.ExpectSuccess(planning([]string{known}, []string{node}))
			Expect(out).To(And(ContainSubstring("No host of the pool control-plane is next: Node cp-2 is not Ready"), HaveSuffix(" cp-1   Node cp-2 is not Ready\n")))
		})

		DescribeTable("what the API server or the webhook refuses in pools of Poolboot, which is no error", func(spec, says string) {
			r := planning([]string{withStatus("infra", "new", spec)}, []string{waiting})
			Expect(r.ErrOut).To(MatchRegexp(`^note: .*pools.yaml: document 1: line \d+: MachineConfigPool "infra": spec.` + says + `: .*\n$`))
			Expect(r.Code).To(BeZero())
		},
			Entry("the schedule of a window", `updates: {maintenanceWindow: {schedule: "0 25 * * *", durationMinutes: 60}}`, "updates.maintenanceWindow.schedule"),
			Entry("0 hosts", "maxUnavailable: 0", "maxUnavailable"),
			Entry("more than all hosts", "maxUnavailable: 150%", "maxUnavailable"),
			Entry("a value that does not exist", "updates: {drainTimeoutPolicy: force}", "updates.drainTimeoutPolicy"),
		)
	})

	It("prints the answer and fails with 2 if a Node has the labels of several custom pools", func() {
		r := planning([]string{withStatus("infra", "new"), withStatus("gpu", "new")}, []string{newNode("a", []string{"infra", "gpu"}, 1), newNode("b", infra, 1, waits)}, "-o", "json")
		Expect(r.Out).To(MatchJSON(`{"gpu":{"maxUnavailable":1,"unavailable":[],"capacity":1,"next":[],"reason":"none waits for an update to new","hosts":[]},"infra":{"maxUnavailable":1,"unavailable":[],"capacity":1,"next":["b"],"hosts":[]}}`))
		Expect(r.ErrOut).To(ContainSubstring(`error: --nodes: Node "a": the labels belong to the pools gpu and infra`))
		Expect(r.Code).To(Equal(2))
	})

	DescribeTable("refuses", func(pools, nodes []string, why ...string) {
		clitest.ExpectError(planning(pools, nodes), 1, why...)
	},
		Entry("a maxUnavailable in quotes", []string{withStatus("infra", "new", `maxUnavailable: "2"`)}, nil,
			`--pools: MachineConfigPool "infra": spec.maxUnavailable: is "2": remove the quotes, or set a percentage such as "10%"`),
		Entry("a negative maxUnavailable", []string{withStatus("infra", "new", "maxUnavailable: -1")}, nil, `MachineConfigPool "infra": spec.maxUnavailable: is "-1"`),
		Entry("files without a pool", []string{"apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"}, nil, "pools.yaml: it contains no MachineConfigPool"),
		Entry("two pools of one role", []string{withStatus("infra", "new"), strings.Replace(withStatus("infra", "new"), "name: infra", "name: other", 1)}, nil, `infra`, `other`),
		Entry("pools of two Clusters", []string{withStatus("infra", "new"), strings.Replace(withStatus("infra", "new"), "clusterName: edge", "clusterName: far", 1)}, nil, "choose one with --cluster"),
		Entry("a Node that is given twice", []string{pool}, []string{newNode("a", infra, 1), newNode("a", infra, 1)}, `--nodes: the files contain Node "a" twice: remove one`),
		Entry("a Node without a name", []string{pool}, []string{newNode("a", infra, 1), "apiVersion: v1\nkind: Node\n"},
			"--nodes: standard input: document 2: Node: metadata.name: is missing: set it"),
		Entry("what is no object", []string{pool}, []string{"a: b"}, "--nodes: standard input: document 1: line 1: is no Kubernetes object"),
	)

	It("allows one host for 0%", func() {
		Expect(asJSON([]string{withStatus("infra", "new", "maxUnavailable: 0%")})).To(ContainSubstring(`"maxUnavailable": 1`))
	})

	It("reads subdirectories with --recursive", func() {
		directory := GinkgoT().TempDir()
		clitest.WriteFileIn(filepath.Join(directory, "edge"), "pools.yaml", pool)
		clitest.ExpectError(runRollout("", "plan", "--pools", directory, "--nodes", "-"), 1, "add -R to read its subdirectories")
		Expect(clitest.ExpectSuccess(runRollout(newNode("a", infra, 1, waits), "plan", "--pools", directory, "--nodes", "-", "-R"))).To(HaveSuffix(" a\n"))
	})

	It("requires both files, and reads standard input once", func() {
		clitest.ExpectError(runRollout("", "plan", "--pools", "-"), 1, "set --nodes: --pools and --nodes belong together")
		clitest.ExpectError(runRollout(pool, "plan", "--pools", "-", "--nodes", "-"), 1, "standard input (-) can be read only once")
	})
})
