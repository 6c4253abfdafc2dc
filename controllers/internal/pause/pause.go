// Package pause maintains Cluster API's condition Paused on the objects that Poolboot reconciles.
package pause

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EnsureCondition does the same as Cluster API's paused.EnsurePausedCondition, except for a new object that is not
// paused: it sets the condition without a write of its own, and the caller writes it with the rest of the status. This
// is safe because a client that waits for a pause waits for the status True. The cluster is nil when it does not exist.
func EnsureCondition(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, object paused.ConditionSetter) (isPaused, requeue bool, err error) {
	clusterPaused := cluster != nil && ptr.Deref(cluster.Spec.Paused, false)
	if clusterPaused || annotations.HasPaused(object) || conditions.Has(object, clusterv1.PausedCondition) {
		return paused.EnsurePausedCondition(ctx, c, cluster, object)
	}
	conditions.Set(object, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason, ObservedGeneration: object.GetGeneration(),
	})
	return false, false, nil
}
