package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

// CordonedByUpdate is the value of agentv1.CordonedAnnotation.
const CordonedByUpdate = "true"

// IsCordonedByUpdate reports whether the manager cordoned a Node for the update of its host.
func IsCordonedByUpdate(node *corev1.Node) bool {
	return node.Annotations[agentv1.CordonedAnnotation] == CordonedByUpdate
}

// Cordon cordons a Node for the update of its host, unless it is cordoned. Kubernetes adds a taint to a Node that is
// cordoned. It is added here too, so that the next write of the Node does not conflict with that of Kubernetes.
func Cordon(node *corev1.Node) {
	if node.Spec.Unschedulable {
		return
	}
	node.Spec.Unschedulable = true
	if !slices.ContainsFunc(node.Spec.Taints, isCordonTaint) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.CordonedAnnotation, CordonedByUpdate)
}

// EndUpdate ends what the manager began with a Node for the update of its host. A Node that was cordoned by someone
// else stays cordoned.
func EndUpdate(node *corev1.Node) {
	if IsCordonedByUpdate(node) {
		node.Spec.Unschedulable = false
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isCordonTaint)
	}
	for _, key := range []string{agentv1.BegunAnnotation, agentv1.CordonedAnnotation, agentv1.DrainStartedAnnotation, agentv1.DetachStartedAnnotation, agentv1.DrainedAnnotation} {
		delete(node.Annotations, key)
	}
}

// isCordonTaint reports whether a taint is that of a Node that is cordoned.
func isCordonTaint(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
}
