package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// sourced is a value and the fields that set it.
type sourced struct {
	value string
	from  []string
}

// labelSet collects labels and the fields that set them.
type labelSet map[string]sourced

// add adds the labels that a field sets. It returns an error for a key or value that the API server would reject, and
// for a key that another field sets to a different value.
func (s labelSet) add(source string, labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if problems := validation.IsQualifiedName(key); problems != nil {
			return &InvalidError{Source: source, Problem: fmt.Sprintf("label key %q: %s", key, strings.Join(problems, "; "))}
		}
		if problems := validation.IsValidLabelValue(value); problems != nil {
			return &InvalidError{Source: source, Problem: fmt.Sprintf("label %s: value %q: %s", key, value, strings.Join(problems, "; "))}
		}
		old, found := s[key]
		if found && old.value != value {
			return conflict(key, old, sourced{value, []string{source}})
		}
		s[key] = sourced{value, append(old.from, source)}
	}
	return nil
}

func (s labelSet) labels() map[string]string {
	labels := make(map[string]string, len(s))
	for key, label := range s {
		labels[key] = label.value
	}
	return labels
}

func (s labelSet) sources() map[string][]string {
	sources := make(map[string][]string, len(s))
	for key, label := range s {
		sources[key] = label.from
	}
	return sources
}

// taintID identifies a taint of a Node. A Node has at most one taint with the same key and effect.
type taintID struct {
	key    string
	effect corev1.TaintEffect
}

// taintSet collects taints and the fields that set them.
type taintSet map[taintID]sourced

// add adds the taints that a field sets. It returns an error for a taint that the API server would reject, and for a
// taint that another field sets to a different value.
func (s taintSet) add(source string, taints []corev1.Taint) error {
	for _, taint := range taints {
		if problem := taintProblem(taint); problem != "" {
			return &InvalidError{Source: source, Problem: fmt.Sprintf("taint %q: %s", taint.ToString(), problem)}
		}
		id := taintID{taint.Key, taint.Effect}
		old, found := s[id]
		if found && old.value != taint.Value {
			return conflict(fmt.Sprintf("%s:%s", taint.Key, taint.Effect), old, sourced{taint.Value, []string{source}})
		}
		s[id] = sourced{taint.Value, append(old.from, source)}
	}
	return nil
}

// taints returns the taints, sorted by key and effect, without timeAdded.
func (s taintSet) taints() []corev1.Taint {
	taints := make([]corev1.Taint, 0, len(s))
	for id, taint := range s {
		taints = append(taints, corev1.Taint{Key: id.key, Value: taint.value, Effect: id.effect})
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return taints
}

// sources returns the fields that set each taint. The keys are the taints as text.
func (s taintSet) sources() map[string][]string {
	sources := make(map[string][]string, len(s))
	for id, taint := range s {
		sources[(&corev1.Taint{Key: id.key, Value: taint.value, Effect: id.effect}).ToString()] = taint.from
	}
	return sources
}

// AppliedTaints returns the value of the annotation pool.cluster.x-k8s.io/applied-taints for the taints that a pool
// declares. It is empty if the pool declares none.
func AppliedTaints(declared []corev1.Taint) string {
	words := make([]string, 0, len(declared))
	for i := range declared {
		words = append(words, declared[i].ToString())
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

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

func conflict(key string, a, b sourced) error {
	return &ConflictError{Key: key, Sources: []string{
		fmt.Sprintf("%s (%q)", a.from[0], a.value),
		fmt.Sprintf("%s (%q)", b.from[0], b.value),
	}}
}
