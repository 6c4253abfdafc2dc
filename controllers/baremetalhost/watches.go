package baremetalhost

import (
	"context"
	"errors"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil {
		return errors.New("baremetalhost controller: Client must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("baremetalhost-controller")
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("baremetalhost").
		For(&bmov1alpha1.BareMetalHost{}).
		Watches(&bootstrapv1.PoolbootConfig{}, handler.EnqueueRequestsFromMapFunc(ofConfig)).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&bootstrapv1.PoolbootConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(onlyNew())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
			builder.WithPredicates(predicate.Or(predicates.ClusterUnpaused(mgr.GetScheme(), ctrl.LoggerFrom(ctx)), onlyNew()))).
		WithOptions(options).
		Complete(r)
}

// onlyNew lets through what comes to stand: a host may have waited for it.
func onlyNew() predicate.Predicate {
	return predicate.Funcs{
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// ofConfig sends the host of a record.
func ofConfig(_ context.Context, object client.Object) []ctrl.Request {
	config, is := object.(*bootstrapv1.PoolbootConfig)
	if !is || config.Spec.Host == nil || config.Spec.Host.BareMetalHost == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.Host.BareMetalHost}}}
}

// ofNamespace sends the hosts of an object's namespace that ask for a pool.
func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) (requests []ctrl.Request) {
	list := &bmov1alpha1.BareMetalHostList{}
	if err := r.Client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "BareMetalHosts can't be listed", "namespace", object.GetNamespace())
		return nil
	}
	for i := range list.Items {
		if asks(&list.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
