// Package remediation pauses the health checks of a Machine while its host is updated.
package remediation

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// skipper is the value of the annotation cluster.x-k8s.io/skip-remediation that Poolboot sets. Only the key counts for
// Cluster API. An annotation with another value belongs to a user, and is kept.
const skipper = "poolboot"

// Pause pauses the health checks of a Machine, or ends the pause. It returns the Machine as it was written, or nil if
// nothing was to be written or the Machine does not exist any more.
func Pause(ctx context.Context, c client.Client, machine *clusterv1.Machine, isPaused bool) (written *clusterv1.Machine, err error) {
	value, exists := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	desired := machine.DeepCopy()
	switch {
	case isPaused && !exists:
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, clusterv1.MachineSkipRemediationAnnotation, skipper)
	case !isPaused && exists && value == skipper:
		delete(desired.Annotations, clusterv1.MachineSkipRemediationAnnotation)
	default:
		return nil, nil
	}
	if err := c.Patch(ctx, desired, client.MergeFrom(machine)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("annotation %s of Machine %s: %w", clusterv1.MachineSkipRemediationAnnotation, client.ObjectKeyFromObject(machine), err)
	}
	return desired, nil
}
