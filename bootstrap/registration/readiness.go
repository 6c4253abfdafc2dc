package registration

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ReadinessGroupVersion and ReadinessRuleKind are those of readiness rules.
var ReadinessGroupVersion = schema.GroupVersion{Group: "readiness.node.x-k8s.io", Version: "v1alpha1"}

// ReadinessRuleKind is the kind of readiness rules.
const ReadinessRuleKind = "NodeReadinessRule"

// taintPrefix is the prefix of the taint keys of all rules. The schema of NodeReadinessRules requires it.
const taintPrefix = "readiness.k8s.io/"

// maxSize is the maximum size of the conditions and the selector of a rule, in bytes. The owner of a workload cluster
// can create rules of more than a megabyte, which take long to parse and to match.
const maxSize = 16 << 10

// ReadinessRule is the part of a NodeReadinessRule that determines whether a new Node has its taint.
type ReadinessRule struct {
	taint    corev1.Taint
	selector labels.Selector
	// isInactive is true for a rule that never adds its taint: a dry run, or a rule that is being deleted.
	isInactive bool
	conditions []condition
	// isAnyOf is true if one of the conditions is sufficient. Otherwise all are necessary.
	isAnyOf bool
}

// condition is a condition that a Node must have. A Node that does not have it is treated as if its status were
// DefaultStatus.
type condition struct {
	Type           corev1.NodeConditionType `json:"type"`
	RequiredStatus corev1.ConditionStatus   `json:"requiredStatus"`
	DefaultStatus  corev1.ConditionStatus   `json:"defaultStatus"`
}

// ParseReadinessRule reads a NodeReadinessRule of version v1alpha1. The error names the field that is not valid.
func ParseReadinessRule(object *unstructured.Unstructured) (ReadinessRule, error) {
	var content struct {
		Spec struct {
			Conditions      []condition          `json:"conditions"`
			ConditionPolicy string               `json:"conditionPolicy"`
			Taint           corev1.Taint         `json:"taint"`
			NodeSelector    metav1.LabelSelector `json:"nodeSelector"`
			DryRun          bool                 `json:"dryRun"`
		} `json:"spec"`
	}
	invalid := func(field string, reason any) error {
		return fmt.Errorf("%s %s: spec%s: %v", ReadinessRuleKind, object.GetName(), field, reason)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &content); err != nil {
		return ReadinessRule{}, invalid("", err)
	}
	spec := content.Spec
	if size := sizeOf(spec.Conditions, &spec.NodeSelector); size > maxSize {
		return ReadinessRule{}, invalid("", fmt.Sprintf("conditions and nodeSelector have %d bytes, and at most %d are supported", size, maxSize))
	}
	selector, err := metav1.LabelSelectorAsSelector(&spec.NodeSelector)
	if err != nil {
		return ReadinessRule{}, invalid(".nodeSelector", err)
	}
	taint := corev1.Taint{Key: spec.Taint.Key, Value: spec.Taint.Value, Effect: spec.Taint.Effect}
	reasons := slices.Concat(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value))
	if !strings.HasPrefix(taint.Key, taintPrefix) {
		reasons = append(reasons, "the key must begin with "+taintPrefix)
	}
	if !slices.Contains([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}, taint.Effect) {
		reasons = append(reasons, fmt.Sprintf("the effect %q is unknown", taint.Effect))
	}
	if len(reasons) > 0 {
		return ReadinessRule{}, invalid(".taint", strings.Join(reasons, "; "))
	}
	return ReadinessRule{
		taint:      taint,
		selector:   selector,
		isInactive: spec.DryRun || object.GetDeletionTimestamp() != nil,
		conditions: spec.Conditions,
		isAnyOf:    spec.ConditionPolicy == "anyOf",
	}, nil
}

// sizeOf returns the approximate size of the fields whose length is not limited.
func sizeOf(conditions []condition, selector *metav1.LabelSelector) (size int) {
	for _, c := range conditions {
		size += len(c.Type) + len(c.RequiredStatus) + len(c.DefaultStatus) + 1
	}
	for key, value := range selector.MatchLabels {
		size += len(key) + len(value) + 1
	}
	for _, expression := range selector.MatchExpressions {
		size += len(expression.Key) + 1
		for _, value := range expression.Values {
			size += len(value) + 1
		}
	}
	return size
}

// ReadinessTaints returns the taints of all rules that select a new Node and that the Node does not satisfy, sorted by
// key and effect.
func ReadinessTaints(rules []ReadinessRule, node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for i := range rules {
		rule := &rules[i]
		known := func(t corev1.Taint) bool { return t.MatchTaint(&rule.taint) }
		if !rule.isInactive && rule.selector.Matches(labels.Set(node.Labels)) && !rule.isSatisfied(node) && !slices.ContainsFunc(taints, known) {
			taints = append(taints, rule.taint)
		}
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int { return strings.Compare(a.Key+string(a.Effect), b.Key+string(b.Effect)) })
	return taints
}

// isSatisfied reports whether the conditions of a Node satisfy the rule.
func (r *ReadinessRule) isSatisfied(node *corev1.Node) bool {
	has := func(c condition) bool {
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == c.Type {
				return node.Status.Conditions[i].Status == c.RequiredStatus
			}
		}
		if c.DefaultStatus == "" {
			return c.RequiredStatus == corev1.ConditionUnknown
		}
		return c.RequiredStatus == c.DefaultStatus
	}
	if r.isAnyOf {
		return slices.ContainsFunc(r.conditions, has)
	}
	return !slices.ContainsFunc(r.conditions, func(c condition) bool { return !has(c) })
}
