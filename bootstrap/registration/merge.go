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

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
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
		if err := s.set(fmt.Sprintf("%s:%s", taint.Key, taint.Effect), taint.Value, source); err != nil {
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

// AppliedTaints returns the value of the annotation poolboot.io/applied-taints for the taints that a pool
// declares. It is empty if the pool declares none.
func AppliedTaints(declared []corev1.Taint) string {
	taints := make([]string, len(declared))
	for i := range declared {
		taints[i] = declared[i].ToString()
	}
	slices.Sort(taints)
	return strings.Join(taints, ",")
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

// AddLabels adds labels to a Node. It keeps each value that the Node already has, because a user can have set it.
func AddLabels(node *corev1.Node, labels map[string]string) {
	for key, value := range labels {
		if _, exists := node.Labels[key]; !exists {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
	}
}

// AddTaints adds taints to a Node. It keeps a taint that has the same key and effect, whatever its value is.
func AddTaints(node *corev1.Node, taints []corev1.Taint) {
	for i := range taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taints[i]) }) {
			node.Spec.Taints = append(node.Spec.Taints, taints[i])
		}
	}
}

// DeclareTaints adds the taints that the pool of a Node declares, each taint once, and lists them in the annotation
// poolboot.io/applied-taints. A listed taint that the Node lacks was removed by a user, and is not added
// again. A taint that is no longer declared leaves the list. If it is declared again, also by another pool to which the
// Node moves, it is added again.
func DeclareTaints(node *corev1.Node, declared []corev1.Taint) {
	applied := strings.Split(node.Annotations[poolv1.NodeAppliedTaintsAnnotation], ",")
	AddTaints(node, slices.DeleteFunc(slices.Clone(declared), func(t corev1.Taint) bool { return slices.Contains(applied, t.ToString()) }))
	list := AppliedTaints(declared)
	if list == "" {
		delete(node.Annotations, poolv1.NodeAppliedTaintsAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeAppliedTaintsAnnotation, list)
}

// cloudProviderTaint is the taint that a kubelet with --cloud-provider=external adds when it creates its Node, without
// a flag for it. The cloud controller manager removes it when it has initialized the Node. A kubelet does not add it to
// a Node that exists.
var cloudProviderTaint = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// initialTaints returns the taints that only a new Node gets, and adds their sources. A taint that the pool or the
// PoolbootConfig declares is not among them.
func initialTaints(in Sources, declared []corev1.Taint, sources map[string][]string) []corev1.Taint {
	if in.CloudProviderSource == "" || slices.ContainsFunc(declared, isCloudProviderTaint) {
		return nil
	}
	sources[cloudProviderTaint.ToString()] = []string{in.CloudProviderSource}
	return []corev1.Taint{cloudProviderTaint}
}

func isCloudProviderTaint(taint corev1.Taint) bool { return taint.MatchTaint(&cloudProviderTaint) }

// KubeletTaints returns the taints for the kubelet's flag --register-with-taints. The taint of cloud providers is not
// among them, also if it is declared: a kubelet with --cloud-provider=external adds it, and the API server refuses a
// Node that has a taint twice.
func (r Registration) KubeletTaints() []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(r.Taints), isCloudProviderTaint)
}
