package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// sourcedValue is a value and the fields that set it.
type sourcedValue struct {
	value   string
	sources []string
}

// sourcedValues collects values and the fields that set them. The keys are those of labels, or the keys and effects of
// taints as <key>:<effect>: a Node has at most one taint with the same key and effect.
type sourcedValues map[string]sourcedValue

// set sets a value. It returns a *LabelConflictError if another field sets the key to a different value.
func (s sourcedValues) set(key, value, source string) error {
	old, exists := s[key]
	if exists && old.value != value {
		return &LabelConflictError{Key: key, Sources: []string{
			fmt.Sprintf("%s (%q)", old.sources[0], old.value), fmt.Sprintf("%s (%q)", source, value),
		}}
	}
	s[key] = sourcedValue{value, append(old.sources, source)}
	return nil
}

// addLabels adds the labels that a field sets. It returns an error for a key or value that the API server would reject,
// and for a key that another field sets to a different value.
func (s sourcedValues) addLabels(source string, labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if problems := validation.IsQualifiedName(key); problems != nil {
			return &InvalidError{Source: source, Problem: fmt.Sprintf("label key %q: %s", key, strings.Join(problems, "; "))}
		}
		if problems := validation.IsValidLabelValue(value); problems != nil {
			return &InvalidError{Source: source, Problem: fmt.Sprintf("label %s: value %q: %s", key, value, strings.Join(problems, "; "))}
		}
		if err := s.set(key, value, source); err != nil {
			return err
		}
	}
	return nil
}

// labels returns the labels, and the fields that set each label by its key.
func (s sourcedValues) labels() (labels map[string]string, sources map[string][]string) {
	labels, sources = make(map[string]string, len(s)), make(map[string][]string, len(s))
	for key, label := range s {
		labels[key], sources[key] = label.value, label.sources
	}
	return labels, sources
}

// addTaints adds the taints that a field sets. It returns an error for a taint that the API server would reject, and
// for a taint that another field sets to a different value.
func (s sourcedValues) addTaints(source string, taints []corev1.Taint) error {
	for _, taint := range taints {
		if problem := taintProblem(taint); problem != "" {
			return &InvalidError{Source: source, Problem: fmt.Sprintf("taint %q: %s", taint.ToString(), problem)}
		}
		if err := s.set(taintID(taint), taint.Value, source); err != nil {
			return err
		}
	}
	return nil
}

// taints returns the taints, sorted by key and effect, without timeAdded. It also returns the fields that set each
// taint, by the taint as text.
func (s sourcedValues) taints() (taints []corev1.Taint, sources map[string][]string) {
	taints, sources = make([]corev1.Taint, 0, len(s)), make(map[string][]string, len(s))
	for id, from := range s {
		key, effect, _ := strings.Cut(id, ":")
		taint := corev1.Taint{Key: key, Value: from.value, Effect: corev1.TaintEffect(effect)}
		taints = append(taints, taint)
		sources[taint.ToString()] = from.sources
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return taints, sources
}

// taintID returns the key and effect of a taint, as in Cluster API's annotation cluster.x-k8s.io/taints-from-machine.
func taintID(taint corev1.Taint) string { return fmt.Sprintf("%s:%s", taint.Key, taint.Effect) }

func taintProblem(taint corev1.Taint) string {
	if problems := validation.IsQualifiedName(taint.Key); problems != nil {
		return "key: " + strings.Join(problems, "; ")
	}
	if problems := validation.IsValidLabelValue(taint.Value); problems != nil {
		return "value: " + strings.Join(problems, "; ")
	}
	switch taint.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return ""
	default:
		return "effect: must be NoSchedule, PreferNoSchedule or NoExecute"
	}
}

// AddLabels adds labels to a Node. It keeps each value that the Node already has, because a user can have set it.
func AddLabels(node *corev1.Node, labels map[string]string) {
	for key, value := range labels {
		if _, exists := node.Labels[key]; !exists {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
	}
}
