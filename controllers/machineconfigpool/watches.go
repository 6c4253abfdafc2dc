package machineconfigpool

import (
	"context"
	"errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.OverlayNamespace == "" {
		return errors.New("machineconfigpool controller: Client, APIReader and OverlayNamespace must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("machineconfigpool-controller")
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineconfigpool").
		For(&poolv1.MachineConfigPool{}).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.pools(ofPool)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&poolv1.MachineConfig{}, handler.EnqueueRequestsFromMapFunc(r.pools(ofMachineConfig)),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&bootstrapv1.PoolbootConfig{}, gathered(r.pools(ofPoolbootConfig)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: countsDiffer})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.pools(ofCluster)),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(options).
		Complete(r)
}

// concern says whether an event concerns a pool.
type concern func(*poolv1.MachineConfigPool) bool

func ofCluster(o client.Object, _ []poolv1.MachineConfigPool) concern {
	return func(p *poolv1.MachineConfigPool) bool { return p.Spec.ClusterName == o.GetName() }
}

// ofPool: others of the cluster inherit from a pool, or have its role.
func ofPool(o client.Object, _ []poolv1.MachineConfigPool) concern {
	name := o.(*poolv1.MachineConfigPool).Spec.ClusterName
	return func(p *poolv1.MachineConfigPool) bool { return p.Spec.ClusterName == name }
}

// ofMachineConfig: the pools that select it, and with a worker pool all others of its cluster, which inherit from it.
// Rendered ones concern only the pool that they were made for.
func ofMachineConfig(o client.Object, pools []poolv1.MachineConfigPool) concern {
	if of := renderedFor(o); of != "" {
		return func(p *poolv1.MachineConfigPool) bool { return of == p.Name }
	}
	inherited := map[string]bool{}
	for i := range pools {
		if spec := &pools[i].Spec; spec.PoolRole == poolv1.RoleWorker && pool.Selects(pools[i], o.GetLabels()) {
			inherited[spec.ClusterName] = true
		}
	}
	return func(p *poolv1.MachineConfigPool) bool {
		return inherited[p.Spec.ClusterName] || pool.Selects(*p, o.GetLabels())
	}
}

// ofPoolbootConfig: one that has joined and has no pool on record may be any pool's.
func ofPoolbootConfig(o client.Object, _ []poolv1.MachineConfigPool) concern {
	config := o.(*bootstrapv1.PoolbootConfig)
	lost := record.HasJoined(config) && config.Status.PoolRole == ""
	return func(p *poolv1.MachineConfigPool) bool {
		return (lost || p.Spec.PoolRole == config.Status.PoolRole) && p.Spec.ClusterName == record.ClusterName(config)
	}
}

// countsDiffer lets those changes of a PoolbootConfig through that its pool counts.
func countsDiffer(e event.UpdateEvent) bool {
	return stateOf(e.ObjectOld.(*bootstrapv1.PoolbootConfig)) != stateOf(e.ObjectNew.(*bootstrapv1.PoolbootConfig))
}

// pools sends the pools in an object's namespace that it concerns. On an update the old and the new object are asked.
func (r *Reconciler) pools(concerns func(client.Object, []poolv1.MachineConfigPool) concern) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (requests []ctrl.Request) {
		pools := &poolv1.MachineConfigPoolList{}
		if err := r.Client.List(ctx, pools, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "MachineConfigPools can't be listed", "namespace", o.GetNamespace())
			return nil
		}
		concerned := concerns(o, pools.Items)
		for i := range pools.Items {
			if concerned(&pools.Items[i]) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
			}
		}
		return requests
	}
}
