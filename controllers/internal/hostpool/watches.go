package hostpool

import (
	"context"

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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Watches adds watches on the kinds that Find reads to a controller. An event requests a reconcile of the objects of
// the controller that are in the same namespace and match. list is an empty list of the kind of these objects.
func Watches(ctx context.Context, b *builder.Builder, c client.Client, list client.ObjectList, matches func(client.Object) bool) *builder.Builder {
	requestAll := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []ctrl.Request {
		objects := list.DeepCopyObject().(client.ObjectList)
		return workload.RequestMatching(ctx, c, objects, matches, client.InNamespace(changed.GetNamespace()))
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return b.
		Watches(&poolv1.MachineConfigPool{}, requestAll, changed).
		Watches(&bootstrapv1.PoolbootConfigTemplate{}, requestAll, changed).
		Watches(&clusterv1.Cluster{}, requestAll, builder.WithPredicates(predicate.Or(
			predicates.ClusterUnpaused(c.Scheme(), ctrl.LoggerFrom(ctx)), clusterDeletion())))
}

// clusterDeletion matches the start and the end of the deletion of a Cluster. The garbage collector can delete the
// pools of the Cluster before or after that.
func clusterDeletion() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}
