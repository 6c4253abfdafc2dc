package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Pools, PoolbootConfigs and templates have the same fields for Nodes, with the same rules.

const poolLabel = "node.labels[poolboot.io/pool]"

func newLabel(key, value string) string { return fmt.Sprintf("node: {labels: {%q: %q}}", key, value) }

func newTaint(key, value, effect string) string {
	return fmt.Sprintf("node: {taints: [{key: %q, value: %q, effect: %q}]}", key, value, effect)
}

func newRule(key string) string {
	return fmt.Sprintf("node: {labelRules: [{key: %q, valueExpression: host.name}]}", key)
}

// newKeys returns YAML of count keys with values.
func newKeys(count int) string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf("key-%d: a", i))
	}
	return strings.Join(all, ", ")
}

var validNodeFields = []TableEntry{
	Entry("labels", `node: {labels: {example.com/rack: r1, tier: A_b.c-9, empty: ""}}`),
	Entry("no labels", `node: {labels: {}}`),
	Entry("the longest label", newLabel(strings.Repeat("a", 253)+"/"+strings.Repeat("a", 63), strings.Repeat("b", 63))),
	Entry("the maximum number of labels", "node: {labels: {"+newKeys(64)+"}}"),
	Entry("a role's label", newLabel("node-role.kubernetes.io/edge", "")),
	Entry("the pool's label", `{poolRole: edge, node: {labels: {poolboot.io/pool: edge}}}`),
	Entry("a taint", newTaint("example.com/dedicated", "edge", "NoSchedule")),
	Entry("a taint without a value", `node: {taints: [{key: dedicated, effect: NoExecute}]}`),
	Entry("a taint with two effects", `node: {taints: [{key: dedicated, effect: NoExecute}, {key: dedicated, effect: NoSchedule}]}`),
	Entry("the taint of external cloud providers", newTaint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")),
	Entry("a rule", newRule("example.com/rack")),
	Entry("a rule with onMissing and onInvalid", `node: {labelRules: [{key: rack, valueExpression: host.name, onMissing: Block, onInvalid: Sanitize}]}`),
}

var invalidNodeFields = []TableEntry{
	Entry("a label with a malformed key", newLabel("-", "x"), "node.labels", "each key must be a label key"),
	Entry("a label whose key has two slashes", newLabel("example.com/a/b", "x"), "node.labels", "each key must be a label key"),
	Entry("a label with a key that is too long", newLabel(strings.Repeat("a", 64), "x"), "node.labels", "each key must be a label key"),
	Entry("a label with a malformed value", newLabel("a", "b c"), "node.labels", "each value must be a label value"),
	Entry("a label with a value that is too long", newLabel("a", strings.Repeat("b", 64)), "node.labels.a", "63"),
	Entry("too many labels", "node: {labels: {"+newKeys(65)+"}}", "node.labels", "64"),
	Entry("the label of the BareMetalHost", newLabel(poolv1.NodeMetal3UUIDLabel, "x"), "node.labels", "metal3.io/uuid", "leave it out"),
	Entry("the label of a control plane", newLabel("node-role.kubernetes.io/control-plane", ""), "node.labels", "leave node-role.kubernetes.io/control-plane out"),
	Entry("the old label of a control plane", newLabel("node-role.kubernetes.io/master", ""), "node.labels", "leave node-role.kubernetes.io/master out"),

	Entry("a taint with an unknown effect", newTaint("dedicated", "edge", "Bogus"), "node.taints[0].effect", `supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`),
	Entry("a taint without an effect", `node: {taints: [{key: dedicated}]}`, "node.taints[0].effect", "Required"),
	Entry("a taint without a key", `node: {taints: [{effect: NoSchedule}]}`, "node.taints[0].key", "Required"),
	Entry("a taint with a malformed key", newTaint("a b", "edge", "NoSchedule"), "node.taints[0].key", "it must be a taint key"),
	Entry("a taint with a malformed value", newTaint("dedicated", "b c", "NoSchedule"), "node.taints[0].value", "label value"),
	Entry("a duplicate taint", `node: {taints: [{key: dedicated, value: a, effect: NoSchedule}, {key: dedicated, value: b, effect: NoSchedule}]}`, "node.taints[1]", "Duplicate"),
	Entry("a taint of Poolboot", newTaint(poolv1.NodeUnassignedTaint, "a", "NoSchedule"), "node.taints[0].key", "leave it out"),
	Entry("a taint of Cluster API", newTaint(clusterv1.NodeUninitializedTaint.Key, "a", "NoSchedule"), "node.taints[0].key", "leave it out"),
	Entry("another taint of Cluster API", newTaint(clusterv1.NodeOutdatedRevisionTaint.Key, "a", "NoSchedule"), "node.taints[0].key", "leave it out"),

	Entry("a rule with a malformed key", newRule("a b"), "node.labelRules[0].key", "it must be a label key"),
	Entry("a rule without a key", `node: {labelRules: [{valueExpression: host.name}]}`, "node.labelRules[0].key", "Required"),
	Entry("a rule without an expression", `node: {labelRules: [{key: rack}]}`, "node.labelRules[0].valueExpression", "Required"),
	Entry("two rules for a label", `node: {labelRules: [{key: rack, valueExpression: host.name}, {key: rack, valueExpression: host.uid}]}`, "node.labelRules[1]", "Duplicate"),
	Entry("a rule for a role", newRule("node-role.kubernetes.io/gpu"), "node.labelRules[0].key", "it is a role"),
	Entry("a rule for the pool's label", newRule(poolv1.NodePoolLabel), "node.labelRules[0].key", "Poolboot sets this label"),
	Entry("a rule for the BareMetalHost's label", newRule(poolv1.NodeMetal3UUIDLabel), "node.labelRules[0].key", "Poolboot sets this label"),
	Entry("a rule for the Node's name", newRule("kubernetes.io/hostname"), "node.labelRules[0].key", "the kubelet sets this label"),
	Entry("a rule for the operating system", newRule("kubernetes.io/os"), "node.labelRules[0].key", "the kubelet sets this label"),
	Entry("a rule for the architecture", newRule("kubernetes.io/arch"), "node.labelRules[0].key", "the kubelet sets this label"),
	Entry("a rule with an unknown onMissing", `node: {labelRules: [{key: rack, valueExpression: host.name, onMissing: Refuse}]}`, "node.labelRules[0].onMissing", `"Skip", "Block"`),
	Entry("a rule with an unknown onInvalid", `node: {labelRules: [{key: rack, valueExpression: host.name, onInvalid: Skip}]}`, "node.labelRules[0].onInvalid", `"Block", "Sanitize"`),
}
