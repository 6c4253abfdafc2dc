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

// pausedBy is the value of the pause annotation that the provider sets. Users set other values.
const pausedBy = "metal3.io/capm3"

// clusterctl move does not move the status of a host. Therefore the provider writes the status to an annotation when
// the Cluster is paused, and blocks clusterctl until then. The operator in the target cluster restores the status.

// pauseHost prepares the host of a paused Cluster's Metal3Machine for a move.
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
	status.HardwareDetails = nil // the HardwareData has the details
	written, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("status of host %s: %w", host.Name, err)
	}
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, pausedBy)
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.StatusAnnotation, string(written))
	delete(host.Annotations, clusterctlv1.BlockMoveAnnotation)
	return r.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// hold blocks clusterctl move for a host, and removes the pause of a moved host.
func hold(host *bmov1alpha1.BareMetalHost) {
	if host.Annotations[bmov1alpha1.PausedAnnotation] == pausedBy {
		delete(host.Annotations, bmov1alpha1.PausedAnnotation)
	}
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
}

// restore restores the status of a moved host, and reports whether the host has the annotation.
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
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(host), data); client.IgnoreNotFound(err) != nil {
			return true, err
		}
		host.Status.HardwareDetails = data.Spec.HardwareDetails
		return true, r.Status().Update(ctx, host)
	}
	before := host.DeepCopy()
	delete(host.Annotations, bmov1alpha1.StatusAnnotation)
	return true, r.Patch(ctx, host, client.MergeFrom(before))
}
