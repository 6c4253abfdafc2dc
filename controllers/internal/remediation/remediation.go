// Package remediation pauses the health checks of a Machine while its host is updated.
package remediation

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// skipper is the value of the annotation cluster.x-k8s.io/skip-remediation that Poolboot sets. Only the key counts for
// Cluster API. An annotation with another value belongs to a user, and is kept.
const skipper = "poolboot"

// End ends the pause of health checks for a host that updates do not follow any more, or never did. The pause is that
// of another PoolbootConfig if updates follow the host of that one on the same Machine: two can adopt one Node, of
// which only one gets it. It returns the same as Pause.
func End(ctx context.Context, c client.Client, machine *clusterv1.Machine, config *bootstrapv1.PoolbootConfig) (written *clusterv1.Machine, err error) {
	if machine.Annotations[clusterv1.MachineSkipRemediationAnnotation] != skipper {
		return nil, nil
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := c.List(ctx, configs, client.InNamespace(machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read the PoolbootConfigs of Machine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	isOfOther := func(other bootstrapv1.PoolbootConfig) bool {
		return other.Name != config.Name && rollout.IsFollowed(&other) && record.MachineName(&other) == machine.Name
	}
	if slices.ContainsFunc(configs.Items, isOfOther) {
		return nil, nil
	}
	return Pause(ctx, c, machine, false)
}

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
