package registration

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// AddLabels adds the labels that a Node lacks. A value that it has may be a person's, and stays.
func AddLabels(node *corev1.Node, labels map[string]string) {
	for key, value := range labels {
		if _, has := node.Labels[key]; has {
			continue
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[key] = value
	}
}

// AddTaints adds the taints that a Node lacks. One of the same key and effect stays, whatever its value is.
func AddTaints(node *corev1.Node, taints []corev1.Taint) {
	for i := range taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taints[i]) }) {
			node.Spec.Taints = append(node.Spec.Taints, taints[i])
		}
	}
}

// DeclareTaints adds the taints that a Node's pool declares, each once: one that is listed as applied and is not there,
// a person removed. The list follows the declaration, so that what is declared again, or by the pool that a Node moves
// to, is added again.
func DeclareTaints(node *corev1.Node, declared []corev1.Taint) {
	applied := strings.Split(node.Annotations[poolv1.NodeAppliedTaintsAnnotation], ",")
	AddTaints(node, slices.DeleteFunc(slices.Clone(declared), func(t corev1.Taint) bool { return slices.Contains(applied, t.ToString()) }))
	list := AppliedTaints(declared)
	if list == "" {
		delete(node.Annotations, poolv1.NodeAppliedTaintsAnnotation)
		return
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[poolv1.NodeAppliedTaintsAnnotation] = list
}
