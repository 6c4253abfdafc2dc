package update

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch;patch

// remediationSkipper is the value of the annotation cluster.x-k8s.io/skip-remediation that this package sets. Only the
// key counts for Cluster API. An annotation with another value belongs to a user, and is kept.
const remediationSkipper = "poolboot"

// remediationPatience is how long a Node can be not Ready, beyond the deadline of its update, before health checks of
// its Machine count again.
const remediationPatience = 10 * time.Minute

// remediation returns whether health checks of a host's Machine are paused because of an update, and when that must be
// decided again, or 0. A host that does not come back is remediated like any other.
func (h *host) remediation(deadline time.Duration, now time.Time) (isPaused bool, again time.Duration) {
	progress := h.Progress()
	if h.Machine == nil || h.IsDeleting() || h.Node == nil || progress != rollout.InUpdate && progress != rollout.Unknown && !h.IsUntold() {
		return false, 0
	}
	for i := range h.Node.Status.Conditions {
		ready := &h.Node.Status.Conditions[i]
		if ready.Type != corev1.NodeReady || ready.Status == corev1.ConditionTrue {
			continue
		}
		left := deadline + remediationPatience - now.Sub(ready.LastTransitionTime.Time)
		return left > 0, max(left, 0)
	}
	return true, 0
}

// setRemediation pauses the health checks of a Machine, or ends the pause.
func setRemediation(ctx context.Context, c client.Client, machine *clusterv1.Machine, isPaused bool) error {
	value, exists := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	desired := machine.DeepCopy()
	switch {
	case isPaused && !exists:
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, clusterv1.MachineSkipRemediationAnnotation, remediationSkipper)
	case !isPaused && exists && value == remediationSkipper:
		delete(desired.Annotations, clusterv1.MachineSkipRemediationAnnotation)
	default:
		return nil
	}
	if err := c.Patch(ctx, desired, client.MergeFrom(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotation %s of Machine %s: %w", clusterv1.MachineSkipRemediationAnnotation, client.ObjectKeyFromObject(machine), err)
	}
	return nil
}
