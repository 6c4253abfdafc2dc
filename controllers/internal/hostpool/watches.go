package hostpool

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Watches has a controller look again at those of its objects that asks says yes to, of a namespace in which something
// changes that Find reads. list is what the controller's objects are listed into, by c.
func Watches(ctx context.Context, b *builder.Builder, c client.Client, list client.ObjectList, asks func(client.Object) bool) *builder.Builder {
	again := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) (requests []ctrl.Request) {
		found := list.DeepCopyObject().(client.ObjectList)
		err := c.List(ctx, found, client.InNamespace(changed.GetNamespace()), client.UnsafeDisableDeepCopy)
		if err == nil {
			err = meta.EachListItem(found, func(item runtime.Object) error {
				if object := item.(client.Object); asks(object) {
					requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
				}
				return nil
			})
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Those that ask for a pool can't be listed", "namespace", changed.GetNamespace())
		}
		return requests
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return b.
		Watches(&poolv1.MachineConfigPool{}, again, changed).
		Watches(&bootstrapv1.PoolbootConfigTemplate{}, again, changed).
		Watches(&clusterv1.Cluster{}, again, builder.WithPredicates(predicate.Or(
			predicates.ClusterUnpaused(c.Scheme(), ctrl.LoggerFrom(ctx)), clusterDeletion())))
}

// clusterGoes lets through the events of a Cluster whose deletion has begun, and of one that is gone. The garbage
// collector may have deleted its pools before that, or do so later.
func clusterDeletion() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}
