package registration_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// newRule returns a NodeReadinessRule with a spec in YAML, which the fields of change replace.
func newRule(change string) *unstructured.Unstructured {
	GinkgoHelper()
	spec := map[string]any{
		"conditions":      []any{map[string]any{"type": "example.com/NetworkReady", "requiredStatus": "True"}},
		"taint":           map[string]any{"key": "readiness.k8s.io/network", "value": "pending", "effect": "NoSchedule"},
		"nodeSelector":    map[string]any{"matchLabels": map[string]any{"node-role.kubernetes.io/infra": ""}},
		"enforcementMode": "bootstrap-only",
	}
	Expect(yaml.Unmarshal([]byte(change), &spec)).To(Succeed())
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "network"}, "spec": spec}}
}

var _ = Describe("The readiness rules of a cluster", func() {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"node-role.kubernetes.io/infra": "", "kubernetes.io/os": "linux"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	}
	taint := corev1.Taint{Key: "readiness.k8s.io/network", Value: "pending", Effect: corev1.TaintEffectNoSchedule}

	DescribeTable("taint a new Node",
		func(change string, expected ...corev1.Taint) {
			rule, err := registration.ParseReadinessRule(newRule(change))
			Expect(err).NotTo(HaveOccurred())
			Expect(registration.ReadinessTaints([]registration.ReadinessRule{rule}, node)).To(ConsistOf(expected))
		},
		Entry("if they select it, because it has none of the conditions yet", "", taint),
		Entry("if they select all Nodes", "nodeSelector: {}", taint),
		Entry("if they are continuous", "enforcementMode: continuous", taint),
		Entry("not if they do not select it", "nodeSelector: {matchLabels: {node-role.kubernetes.io/edge: ''}}"),
		Entry("not in a dry run", "dryRun: true"),
		Entry("not if the default of the condition satisfies them", "conditions: [{type: example.com/Fault, requiredStatus: 'False', defaultStatus: 'False'}]"),
		Entry("not if a condition must be Unknown", "conditions: [{type: example.com/Fault, requiredStatus: Unknown}]"),
		Entry("not if a condition that the Node has satisfies them", "conditions: [{type: Ready, requiredStatus: 'False'}]"),
		Entry("if one of two conditions is not satisfied", "conditions: [{type: Ready, requiredStatus: 'False'}, {type: example.com/NetworkReady, requiredStatus: 'True'}]", taint),
		Entry("not if one of two conditions is sufficient",
			"{conditionPolicy: anyOf, conditions: [{type: Ready, requiredStatus: 'False'}, {type: example.com/NetworkReady, requiredStatus: 'True'}]}"),
	)

	It("add a taint of two rules once, and sort the taints", func() {
		var rules []registration.ReadinessRule
		for _, change := range []string{"", "taint: {key: readiness.k8s.io/network, effect: NoSchedule}", "taint: {key: readiness.k8s.io/disk, effect: NoExecute}"} {
			rule, err := registration.ParseReadinessRule(newRule(change))
			Expect(err).NotTo(HaveOccurred())
			rules = append(rules, rule)
		}
		Expect(registration.ReadinessTaints(rules, node)).To(Equal([]corev1.Taint{{Key: "readiness.k8s.io/disk", Effect: corev1.TaintEffectNoExecute}, taint}))
	})

	It("do not taint a Node while they are being deleted", func() {
		object := newRule("")
		object.SetDeletionTimestamp(ptr.To(metav1.Now()))
		rule, err := registration.ParseReadinessRule(object)
		Expect(err).NotTo(HaveOccurred())
		Expect(registration.ReadinessTaints([]registration.ReadinessRule{rule}, node)).To(BeEmpty())
	})

	DescribeTable("are not used if they are not valid",
		func(change, message string) {
			_, err := registration.ParseReadinessRule(newRule(change))
			Expect(err).To(MatchError(ContainSubstring("NodeReadinessRule network: spec" + message)))
		},
		Entry("a selector", "nodeSelector: {matchExpressions: [{key: a, operator: Is}]}", ".nodeSelector"),
		Entry("an effect", "taint: {key: readiness.k8s.io/network, effect: Never}", `.taint: the effect "Never" is unknown`),
		Entry("the key of another taint", "taint: {key: node-role.kubernetes.io/control-plane, effect: NoSchedule}", ".taint: the key must begin with readiness.k8s.io/"),
		Entry("a key that the API server refuses", "taint: {key: 'readiness.k8s.io/a b', effect: NoSchedule}", ".taint: name part must consist of"),
		Entry("a value that the API server refuses", "taint: {key: readiness.k8s.io/a, value: 'a b', effect: NoSchedule}", ".taint: a valid label"),
		Entry("a huge selector", "nodeSelector: {matchExpressions: [{key: a, operator: In, values: ["+strings.Repeat("'',", 20000)+"'']}]}",
			": conditions and nodeSelector have 20032 bytes, and at most 16384"),
		Entry("huge labels", "nodeSelector: {matchLabels: {a: "+strings.Repeat("a", 20000)+"}}", ": conditions and nodeSelector have"),
		Entry("a huge condition", "conditions: [{type: "+strings.Repeat("a", 20000)+"}]", ": conditions and nodeSelector have"),
		Entry("another type of a field", "taint: none", ": "),
	)
})
