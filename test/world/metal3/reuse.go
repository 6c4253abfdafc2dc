package metal3

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// reuseLabel is a label on a host that is kept for the next Machine of a MachineDeployment, with the
// MachineDeployment's name.
const reuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"

// reuseLabelValue returns the value of reuseLabel on hosts that are kept for a Machine.
func reuseLabelValue(machine *clusterv1.Machine) string {
	return "md-" + machine.Labels[clusterv1.MachineDeploymentNameLabel]
}

// keepForReuse keeps a freed host for its MachineDeployment if the Metal3MachineTemplate has nodeReuse: with the label,
// and with the Cluster as consumer.
func (r *machineReconciler) keepForReuse(ctx context.Context, s *machineScope, host *bmov1alpha1.BareMetalHost) error {
	template := &infrav1.Metal3MachineTemplate{}
	key := client.ObjectKey{Namespace: s.metal3Machine.Namespace, Name: s.metal3Machine.Annotations[clusterv1.TemplateClonedFromNameAnnotation]}
	if key.Name == "" {
		return nil
	}
	if err := r.live.Get(ctx, key, template); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !ptr.Deref(template.Spec.NodeReuse, false) || !s.cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	metav1.SetMetaDataLabel(&host.ObjectMeta, reuseLabel, reuseLabelValue(s.machine))
	host.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Namespace: s.cluster.Namespace, Name: s.cluster.Name,
	}
	return nil
}

// isKept reports whether a host is kept for a MachineDeployment.
func isKept(host *bmov1alpha1.BareMetalHost) bool {
	return metav1.HasLabel(host.ObjectMeta, reuseLabel)
}
