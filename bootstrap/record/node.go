package record

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// ConfigOfNode returns the PoolbootConfig for which a Node was pre-registered, from its annotation. It returns false if
// Poolboot did not pre-register the Node.
func ConfigOfNode(node metav1.Object) (types.NamespacedName, bool) {
	namespace, name, found := strings.Cut(node.GetAnnotations()[poolv1.NodeConfigAnnotation], "/")
	if !found || namespace == "" || name == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}

// IsNodeOf reports whether a Node was pre-registered for a PoolbootConfig.
func IsNodeOf(node metav1.Object, config *bootstrapv1.PoolbootConfig) bool {
	owner, found := ConfigOfNode(node)
	return found && owner == Key(config)
}

// HasKubelet reports whether a kubelet has used a Node. Only a kubelet reports a version.
func HasKubelet(node *corev1.Node) bool { return node.Status.NodeInfo.KubeletVersion != "" }
