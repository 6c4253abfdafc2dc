package registration

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

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
