package metal3

import (
	"context"
	"encoding/json"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pausedBy is what the provider writes as the value of a host's pause: one that a person set has another.
const pausedBy = "metal3.io/capm3"

// How a host is carried to another management cluster: its status does not go with it, so the provider writes it down
// in an annotation when the Cluster is paused, and holds clusterctl back until then; the operator over there reads it
// again.

// pauseHost makes the host of a paused Cluster's Metal3Machine ready to be moved.
func (r *machineReconciler) pauseHost(ctx context.Context, s *machineScope) error {
	host, err := associatedHost(ctx, r.live, s.metal3Machine)
	if err != nil || host == nil {
		return err
	}
	if _, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return nil
	}
	before := host.DeepCopy()
	status := host.Status.DeepCopy()
	status.HardwareDetails = nil // The HardwareData has it.
	written, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("status of host %s: %w", host.Name, err)
	}
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, pausedBy)
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.StatusAnnotation, string(written))
	delete(host.Annotations, clusterctlv1.BlockMoveAnnotation)
	return r.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// hold keeps clusterctl from moving a host before it is ready for that, and ends the pause of one that was moved.
func hold(host *bmov1alpha1.BareMetalHost) {
	if host.Annotations[bmov1alpha1.PausedAnnotation] == pausedBy {
		delete(host.Annotations, bmov1alpha1.PausedAnnotation)
	}
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
}

// restore gives a host that was moved here the status that it had, and says whether there was anything to do.
func (r *hostReconciler) restore(ctx context.Context, host *bmov1alpha1.BareMetalHost) (bool, error) {
	written, moved := host.Annotations[bmov1alpha1.StatusAnnotation]
	if !moved {
		return false, nil
	}
	if host.Status.OperationalStatus == "" {
		if err := json.Unmarshal([]byte(written), &host.Status); err != nil {
			return true, fmt.Errorf("annotation %s of host %s: %w", bmov1alpha1.StatusAnnotation, host.Name, err)
		}
		data := &bmov1alpha1.HardwareData{}
		if err := r.hosts.Get(ctx, client.ObjectKeyFromObject(host), data); client.IgnoreNotFound(err) != nil {
			return true, err
		}
		host.Status.HardwareDetails = data.Spec.HardwareDetails
		return true, r.Status().Update(ctx, host)
	}
	before := host.DeepCopy()
	delete(host.Annotations, bmov1alpha1.StatusAnnotation)
	return true, r.Patch(ctx, host, client.MergeFrom(before))
}
