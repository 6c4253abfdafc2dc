package diff

import (
	"context"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	bootpool "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var _ = Describe("diff of the labels and taints of a pool's Nodes", func() {
	const gpu, quiet = "{key: example.com/gpu, value: a100, effect: NoExecute}", "{key: example.com/quiet, effect: NoSchedule}"
	worker := clitest.Pool("infra-1", "worker")
	// pool is the pool infra with more in its spec, in YAML's flow style.
	pool := func(fields ...string) string {
		return strings.Replace(clitest.Pool("infra-1", "infra"), "spec:\n", strings.Join(append([]string{"spec:"}, fields...), "\n  ")+"\n", 1)
	}
	node := func(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/infra": ""}, Annotations: map[string]string{}}}
		for key, value := range labels {
			n.Labels[key] = value
		}
		n.Spec.Taints = taints
		return n
	}
	pod := func(on, name string, phase corev1.PodPhase, tolerations ...corev1.Toleration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		p.Spec.NodeName, p.Spec.Tolerations, p.Status.Phase = on, tolerations, phase
		return p
	}
	// diffed is what diff says of a change of the pool infra with the Nodes host-1 and host-2, and the objects of the
	// workload cluster.
	diffed := func(from, to []string, own ...client.Object) string {
		GinkgoHelper()
		management := clitest.NewFakeConnection([]string{worker, pool(from...), clitest.Config("51-infra", "infra", "{}")}, clitest.PoolbootConfig("infra", "infra-a", "host-1"), clitest.PoolbootConfig("infra", "infra-b", "host-2"))
		management.Own = clitest.NewFakeClientBuilder().WithObjects(own...).Build()
		r := runDiff(management, "-f", clitest.WriteFile("new.yaml", pool(to...)))
		Expect(r.ErrOut).To(Or(BeEmpty(), ContainSubstring("a kubelet can set zone")))
		Expect(r.Code).To(Equal(1), r.Out)
		return r.Out
	}

	It("shows a label, on which Nodes it is added, and which keep another value", func() {
		out := diffed(nil, []string{"node: {labels: {example.com/tier: gold}}"}, node("host-1", nil), node("host-2", map[string]string{"example.com/tier": "mine"}), node("other", nil))
		Expect(out).To(MatchRegexp(`^MachineConfigPool edge/infra \(Cluster infra-1\)
  config:   rendered-infra-[0-9a-f]{32}, unchanged
  reboot:   no: Restart kubelet.service \(its flags have the labels and taints of the pool\)
  machines: 2
    Machine infra-a, Node host-1
    Machine infra-b, Node host-2
  \+ node\.labels example.com/tier: gold
      existing Nodes without the label get it; Nodes with another value keep it
  Node host-1
      \+ label example.com/tier: gold
  Node host-2
      = label example.com/tier: mine stays
$`))
	})

	DescribeTable("says that the kubelet of each running host with an agent restarts when its flags change:",
		func(isRestarted bool, before, after string) {
			host, rendered := runningHost("infra-a", "host-1")
			to := clitest.NewFakeConnection([]string{worker, pool(before)}, host, rendered)
			to.Own = clitest.NewFakeClientBuilder().Build()
			r := runDiff(to, "-f", clitest.WriteFile("new.yaml", pool(after)))
			Expect(r.Code).To(Equal(1), r.ErrOut)
			reboot, effect := "no: the config is the same", ""
			if isRestarted {
				reboot, effect = "no: Restart kubelet.service (its flags have the labels and taints of the pool)", ": Restart"
			}
			Expect(r.Out).To(ContainSubstring("  reboot:   " + reboot + "\n  machines: 1\n    Machine infra-a, Node host-1" + effect + "\n"))
		},
		Entry("by a new label", true, "paused: false", "node: {labels: {a: b}}"),
		Entry("by another value", true, "node: {labels: {a: b}}", "node: {labels: {a: c}}"),
		Entry("without a label", true, "node: {labels: {a: b}}", "paused: false"),
		Entry("by a new taint", true, "paused: false", "node: {taints: ["+quiet+"]}"),
		Entry("not by a label that a kubelet can't set", false, "paused: false", "node: {labels: {node-role.kubernetes.io/x: ''}}"),
		Entry("not by a label rule, which applies when a host boots", false, "paused: false", "node: {labelRules: [{key: a, valueExpression: host.name}]}"),
	)

	It("shows every field of the spec that changes, also those that a file no longer has", func() {
		fields := []string{"maxUnavailable: 25%", "kubelet: {wrapper: [/bin/a, b]}", "hosts: {architecture: arm64}",
			"updates: {driftPolicy: Repair, minReadySeconds: 0, readyDeadlineSeconds: 600, drainTimeoutSeconds: 1800, drainTimeoutPolicy: Force, failureDomainLabel: example.com/rack, " +
				"maintenanceWindow: {schedule: 0 22 * * 6, durationMinutes: 60}, gates: [{name: a, objectRef: {apiVersion: v1, kind: ConfigMap, name: a}, expression: 'true'}]}"}
		lines := []string{"hosts.architecture: arm64", `kubelet.wrapper: ["/bin/a","b"]`, "maxUnavailable: 25%",
			"updates.drainTimeoutPolicy: Force", "updates.drainTimeoutSeconds: 1800", "updates.driftPolicy: Repair", "updates.failureDomainLabel: example.com/rack",
			`updates.gates: [{"expression":"true","name":"a","objectRef":{"apiVersion":"v1","kind":"ConfigMap","name":"a"}}]`,
			"updates.maintenanceWindow.durationMinutes: 60", "updates.maintenanceWindow.schedule: 0 22 * * 6", "updates.minReadySeconds: 0", "updates.readyDeadlineSeconds: 600"}
		for sign, out := range map[string]string{"+": diffed(nil, fields), "-": diffed(fields, nil)} {
			var shown []string
			for _, line := range clitest.Rows(strings.ReplaceAll(out, "\n  "+sign+" ", "\n"+sign+" ")) {
				if field, ok := strings.CutPrefix(line, sign+" "); ok {
					shown = append(shown, field)
				}
			}
			Expect(shown).To(ContainElements(lines), sign)
		}
		Expect(diffed([]string{"maxUnavailable: 1"}, []string{"maxUnavailable: 2"})).To(HaveSuffix("\n  ~ maxUnavailable: 1 -> 2\n"))
	})

	It("shows that existing Nodes keep a changed or removed label or taint, as the manager does", func() {
		of := func(value string) []string {
			return []string{"node: {labels: {example.com/tier: " + value + "}, taints: [{key: example.com/quiet, value: " + value + ", effect: NoSchedule}]}"}
		}
		has := node("host-1", map[string]string{"example.com/tier": "a"}, corev1.Taint{Key: "example.com/quiet", Value: "a", Effect: corev1.TaintEffectNoSchedule})
		has.Annotations[poolv1.NodeAppliedTaintsAnnotation] = "example.com/quiet=a:NoSchedule"
		out := diffed(of("a"), of("b"), has)
		Expect(out).To(And(
			ContainSubstring("  ~ node.labels example.com/tier: a -> b\n      existing Nodes with the label keep their value; Nodes without it get the new value\n"),
			ContainSubstring("  ~ node.taints example.com/quiet:NoSchedule: a -> b\n      existing Nodes with the taint keep its value; Nodes without it get the new value\n"),
			HaveSuffix("  Node host-1\n      = label example.com/tier: a stays\n      = taint example.com/quiet=a:NoSchedule stays\n")))
		out = diffed(of("a"), nil, has)
		Expect(out).To(And(
			ContainSubstring("  - node.labels example.com/tier: a\n      existing Nodes keep the label; Nodes that register later do not get it\n"),
			ContainSubstring("  - node.taints example.com/quiet:NoSchedule: a\n      existing Nodes keep the taint; Nodes that register later do not get it\n"),
			HaveSuffix("      = label example.com/tier: a stays\n      = taint example.com/quiet=a:NoSchedule stays\n")))
	})

	It("names the Pods that a taint with the effect NoExecute evicts, and those that it evicts later", func() {
		seconds := int64(90)
		tolerates := corev1.Toleration{Key: "example.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		forAWhile := tolerates
		forAWhile.TolerationSeconds = &seconds
		out := diffed(nil, []string{"node: {taints: [" + gpu + "]}"}, node("host-1", nil), node("host-2", nil),
			pod("host-1", "web", corev1.PodRunning), pod("host-1", "daemon", corev1.PodRunning, corev1.Toleration{Operator: corev1.TolerationOpExists}),
			pod("host-1", "cache", corev1.PodRunning, forAWhile), pod("host-1", "done", corev1.PodSucceeded), pod("elsewhere", "far", corev1.PodRunning),
			pod("host-2", "driver", corev1.PodRunning, tolerates))
		Expect(out).To(HaveSuffix(`  + node.taints example.com/gpu:NoExecute: a100
      existing Nodes get the taint once; Nodes that have a taint with this key and effect keep its value
      on Nodes that get the taint, Pods that do not tolerate it are evicted, and new ones are not scheduled
  Node host-1
      + taint example.com/gpu=a100:NoExecute
      evicts Pod default/cache after 1m30s (tolerationSeconds)
      evicts Pod default/web
  Node host-2
      + taint example.com/gpu=a100:NoExecute
      evicts no Pod: the running Pods tolerate the taint
`))
	})

	It("reports that no Pod runs on a Node, and quotes control characters in a Pod's name", func() {
		out := diffed(nil, []string{"node: {taints: [" + gpu + "]}"}, node("host-1", nil), node("host-2", nil), pod("host-1", "web\x1b]0;owned\a\u202e", corev1.PodRunning))
		Expect(out).To(And(ContainSubstring("Node host-2\n      + taint example.com/gpu=a100:NoExecute\n      evicts no Pod: no Pod runs on the Node\n"),
			ContainSubstring(`evicts Pod "default/web\x1b]0;owned\a\u202e"`), Not(ContainSubstring("\x1b"))))
	})

	It("prints what the documentation shows", func() {
		document, err := os.ReadFile(sourcetree.Path("docs", "kubectl-poolboot.md"))
		Expect(err).NotTo(HaveOccurred())
		shown := regexp.MustCompile("(?ms)^```console nodes\n\\$ kubectl poolboot diff -f pools -n metal\n(.*?)^```").FindStringSubmatch(string(document))
		Expect(shown).NotTo(BeNil())
		host, rendered := runningHost("infra-x7k2m", "host-7")
		to := clitest.NewFakeConnection([]string{worker, pool("node: {labels: {example.com/tier: silver}}")}, host, rendered)
		to.Own = clitest.NewFakeClientBuilder().WithObjects(node("host-7", map[string]string{"example.com/tier": "silver"}), pod("host-7", "web", corev1.PodRunning)).Build()
		r := runDiff(to, "-f", clitest.WriteFile("pools.yaml", pool("node: {labels: {example.com/tier: gold}, taints: ["+gpu+"]}")))
		hash := regexp.MustCompile("-[0-9a-f]{32}")
		Expect(hash.ReplaceAllString(strings.Replace(r.Out, "edge/infra", "metal/infra", 1), "")).To(Equal(hash.ReplaceAllString(shown[1], "")))
	})

	It("shows that a taint with the effect NoSchedule evicts no Pod", func() {
		out := diffed(nil, []string{"node: {taints: [" + quiet + "]}"}, node("host-1", nil), pod("host-1", "web", corev1.PodRunning))
		Expect(out).To(HaveSuffix(`      on Nodes that get the taint, new Pods that do not tolerate it are not scheduled; running Pods stay
  Node host-1
      + taint example.com/quiet:NoSchedule
`))
	})

	It("does not show a taint that a person removed from a Node", func() {
		removed := node("host-1", nil)
		removed.Annotations[poolv1.NodeAppliedTaintsAnnotation] = "example.com/quiet:NoSchedule"
		out := diffed([]string{"node: {taints: [" + quiet + "]}"}, []string{"node: {taints: [" + quiet + "], labels: {a: b}}"}, removed)
		Expect(out).To(HaveSuffix("  Node host-1\n      + label a: b\n"))
	})

	It("shows label rules, which change no existing Node, without reading Nodes", func() {
		rule := func(expression string) []string {
			return []string{"node: {labelRules: [{key: example.com/rack, valueExpression: '" + expression + "'}]}"}
		}
		to := clitest.NewFakeConnection([]string{worker, pool(rule("host.name")...)}, clitest.PoolbootConfig("infra", "infra-a", "host-1"))
		r := runDiff(to, "-f", clitest.WriteFile("new.yaml", pool(rule("host.labels.rack")...)))
		Expect(r.Code).To(Equal(1))
		Expect(r.Out).To(HaveSuffix(`  ~ node.labelRules example.com/rack: host.name (onMissing: Skip, onInvalid: Block) -> host.labels.rack (onMissing:
  Skip, onInvalid: Block)
      applies to hosts that boot later; existing Nodes keep their labels
`))
		Expect(runDiff(to, "-f", clitest.WriteFile("new.yaml", pool(rule("host.name")...)))).To(Equal(clitest.Result{}), "the defaults that the API server fills in are no change")
	})

	It("shows the Nodes that a changed nodeSelector moves, also to a pool that is not in the files", func() {
		out := diffed(nil, []string{"nodeSelector: {matchLabels: {zone: z}}"}, node("host-1", map[string]string{"node-role.kubernetes.io/worker": ""}), node("host-2", nil))
		Expect(out).To(HaveSuffix(`  ~ nodeSelector: node-role.kubernetes.io/infra= -> zone=z
      existing Nodes move to the pool that then selects their labels
  Node host-1
      moves from pool infra to pool worker
  Node host-2
      leaves pool infra: no pool selects its labels then
`))
	})

	It("shows the Nodes that a new pool selects, with their new labels and taints", func() {
		both := map[string]string{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": ""}
		to := clitest.NewFakeConnection([]string{worker}, clitest.PoolbootConfig("worker", "w", "host-1"))
		n := node("host-1", both)
		delete(n.Labels, "node-role.kubernetes.io/infra")
		to.Own = clitest.NewFakeClientBuilder().WithObjects(n).Build()
		gpuPool := strings.Replace(clitest.Pool("infra-1", "gpu"), "spec:\n", "spec:\n  node: {taints: ["+quiet+"]}\n", 1)
		r := runDiff(to, "-f", clitest.WriteFile("new.yaml", gpuPool))
		Expect(r.Out).To(And(ContainSubstring("  + nodeSelector: node-role.kubernetes.io/gpu=\n"),
			HaveSuffix("  Node host-1\n      moves from pool worker to pool gpu\n      + taint example.com/quiet:NoSchedule\n")))
	})

	It("shows that a person must act when a Node's labels select several pools", func() {
		out := diffed(nil, []string{"node: {labels: {node-role.kubernetes.io/storage: ''}}"}, node("host-1", nil))
		Expect(out).To(ContainSubstring("Node host-1\n      + label node-role.kubernetes.io/storage: \"\"\n"), "no pool storage")
		to := clitest.NewFakeConnection([]string{worker, pool(), clitest.Pool("infra-1", "storage")}, clitest.PoolbootConfig("infra", "infra-a", "host-1"))
		to.Own = clitest.NewFakeClientBuilder().WithObjects(node("host-1", map[string]string{"example.com/disks": "many"})).Build()
		storage := strings.Replace(clitest.Pool("infra-1", "storage"), "spec:\n", "spec:\n  nodeSelector: {matchLabels: {example.com/disks: many}}\n", 1)
		r := runDiff(to, "-f", clitest.WriteFile("new.yaml", storage))
		Expect(r.Out).To(ContainSubstring("  Node host-1\n      gets no change until a person acts: "))
	})

	It("shows changes of paused and of the template of hosts", func() {
		out := diffed(nil, []string{"paused: true", "hosts: {templateRef: {name: infra}}"})
		Expect(out).To(HaveSuffix("  + hosts.templateRef: infra\n  + paused: true\n"))
	})

	It("refuses a pool in which no Node can be registered", func() {
		to := clitest.NewFakeConnection([]string{worker, pool()})
		clitest.ExpectError(runDiff(to, "-f", clitest.WriteFile("new.yaml", pool("nodeSelector: {matchExpressions: [{key: zone, operator: In, values: [a, b]}]}"))), 2, "allows several values")
	})

	DescribeTable("reports what it could not read:",
		func(why string, own client.Reader) {
			to := clitest.NewFakeConnection([]string{worker, pool()}, clitest.PoolbootConfig("infra", "infra-a", "host-1"))
			to.Own = own
			r := runDiff(to, "-f", clitest.WriteFile("new.yaml", pool("node: {taints: ["+gpu+"]}")))
			Expect(r.Code).To(Equal(1))
			Expect(r.Out).To(And(ContainSubstring("+ node.taints example.com/gpu:NoExecute: a100\n"), ContainSubstring(why)))
		},
		Entry("the changes of Nodes, without the kubeconfig", "  nodes: the effect on existing Nodes and their Pods is unknown: secrets is forbidden\n", nil),
		Entry("the changes of Nodes, when it is forbidden to list them", "is unknown: list the Nodes of Cluster infra-1: forbidden\n", newForbiddenReader(&corev1.NodeList{})),
		Entry("the evicted Pods, when it is forbidden to list them", "the Pods that are evicted are unknown: list Pods: forbidden\n", newForbiddenReader(&corev1.PodList{}, node("host-1", nil))),
	)
})

// unlisted reads objects, and may not list those of one kind.
func newForbiddenReader(kind client.ObjectList, objects ...client.Object) client.Reader {
	return interceptor.NewClient(clitest.NewFakeClientBuilder().WithObjects(objects...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if reflect.TypeOf(list) == reflect.TypeOf(kind) {
				return errors.New("forbidden")
			}
			return c.List(ctx, list, options...)
		},
	})
}

// runningHost returns a host with an agent that runs what the pool infra renders without MachineConfigs.
func runningHost(name, node string) (*bootstrapv1.PoolbootConfig, *poolv1.MachineConfig) {
	GinkgoHelper()
	pools := make([]poolv1.MachineConfigPool, 2)
	for i, role := range []string{"worker", "infra"} {
		pools[i].Name, pools[i].Spec.PoolRole = role, role
	}
	result, err := bootpool.Render("infra", pools, nil)
	Expect(err).NotTo(HaveOccurred())
	rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: result.Name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}, Spec: result.Spec}
	host := clitest.PoolbootConfig("infra", name, node)
	record.RevokeToken(host)
	host.Status.Boot.ServedConfiguration.Name, host.Status.Update.DesiredRevision = rendered.Name, strings.Repeat("0", 64)
	return host, rendered
}

var _ = Describe("diff of the running hosts of a pool", func() {
	worker, infra := clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra")

	It("says for each running host with an agent what happens to it, by what it runs", func() {
		objects := []client.Object{clitest.PoolbootConfig("infra", "booting", "")}
		for name, spec := range map[string]poolv1.MachineConfigSpec{
			"same": {KernelArguments: []string{"quiet"}}, "earlier": {KernelType: "realtime"}, "disk": {FIPS: ptr.To(true)}, "other": {KernelArguments: []string{"quiet"}}, "gone": {},
		} {
			rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "rendered-" + name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}, Spec: spec}
			if name == "other" {
				rendered.Labels[poolv1.RenderedForLabel] = "worker"
			}
			if name != "gone" {
				objects = append(objects, rendered)
			}
			host := clitest.PoolbootConfig("infra", name, "node-"+name)
			record.RevokeToken(host)
			host.Status.Boot.ServedConfiguration.Name, host.Status.Update.DesiredRevision = rendered.Name, strings.Repeat("0", 64)
			objects = append(objects, host)
		}
		tools := clitest.PoolbootConfig("infra", "tools", "node-tools") // it has no program for kernel arguments
		record.RevokeToken(tools)
		tools.Status.Boot.ServedConfiguration.Name, tools.Status.Update.DesiredRevision = "rendered-earlier", strings.Repeat("0", 64)
		tools.Status.Update.UnsupportedChanges = []string{"KernelArguments"}
		objects = append(objects, tools)
		agentless := clitest.PoolbootConfig("infra", "agentless", "node-agentless")
		record.RevokeToken(agentless)
		r := runDiff(clitest.NewFakeConnection([]string{worker, infra, clitest.Config("51-infra", "infra", "{}")}, append(objects, agentless)...),
			"-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", `{kernelArguments: [quiet]}`)))
		Expect(r.Out).To(ContainSubstring(`machines: 8
    Machine agentless, Node node-agentless
    Machine booting
    Machine disk, Node node-disk: Replace, because it still runs rendered-disk
    Machine earlier, Node node-earlier: Reboot, because it still runs rendered-earlier
    Machine gone, Node node-gone: Unknown, because it still runs rendered-gone
    Machine other, Node node-other: Restart, because it still runs rendered-other
    Machine same, Node node-same: None, because it still runs rendered-same
    Machine tools, Node node-tools: Replace, because it still runs rendered-earlier
`))
		Expect(r.Out).To(ContainSubstring("reboot:   yes: kernelArguments"))
	})

	It("says what no running host of the pool has a program for", func() {
		host := clitest.PoolbootConfig("infra", "tools", "node-tools")
		record.RevokeToken(host)
		host.Status.Update = bootstrapv1.UpdateStatus{DesiredRevision: strings.Repeat("0", 64), UnsupportedChanges: []string{"KernelArguments", "OSImage"}}
		r := runDiff(clitest.NewFakeConnection([]string{worker, infra, clitest.Config("51-infra", "infra", "{}")}, host),
			"-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", `{kernelArguments: [quiet]}`)))
		Expect(r.Out).To(And(ContainSubstring("reboot:   is not enough"), ContainSubstring("kernelArguments: the host has no program that can change it")))
	})
})
