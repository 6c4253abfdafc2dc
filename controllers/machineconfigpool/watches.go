package machineconfigpool

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// interval is the shortest time between two looks at a pool because of events of its hosts. A pool with thousands of
// them has many, each look reads all hosts, and what it counts is outdated soon. So a look is for all events since the
// one before.
const interval = 2 * time.Second

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.OverlayNamespace == "" {
		return errors.New("machineconfigpool controller: Client, APIReader and OverlayNamespace must be set")
	}
	r.Recorder = mgr.GetEventRecorder("machineconfigpool-controller")
	changedByUser := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	watches := ctrl.NewControllerManagedBy(mgr).
		Named("machineconfigpool").
		For(&poolv1.MachineConfigPool{}, builder.WithPredicates(changedByUser)).
		Watches(&poolv1.MachineConfigPool{}, fairqueue.EnqueueLow(workload.RequestItself)). // this controller writes its status
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.requestPools(ofPool)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&poolv1.MachineConfig{}, handler.EnqueueRequestsFromMapFunc(r.requestPools(ofMachineConfig)),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&bootstrapv1.PoolbootConfig{}, fairqueue.EnqueueLow(r.requestPools(ofPoolbootConfig)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: countsDiffer})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.requestPools(ofCluster)),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{},
				predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), ctrl.LoggerFrom(ctx))))).
		WithOptions(fairqueue.Paced(fairqueue.Options(options, fairqueue.FlowOfPool(r.Client)), interval))
	if r.Updates == nil {
		return watches.Complete(r)
	}
	r.Updates.Recorder = r.Recorder
	return r.Updates.FollowPools(mgr, watches, r)
}

// poolFilter reports whether an event requires a reconcile of a pool.
type poolFilter func(*poolv1.MachineConfigPool) bool

// ofCluster matches the pools of a Cluster.
func ofCluster(o client.Object, _ []poolv1.MachineConfigPool) poolFilter {
	return func(p *poolv1.MachineConfigPool) bool { return p.Spec.ClusterName == o.GetName() }
}

// ofPool matches all pools of the same Cluster: they can inherit from the pool, or have the same role.
func ofPool(o client.Object, _ []poolv1.MachineConfigPool) poolFilter {
	name := o.(*poolv1.MachineConfigPool).Spec.ClusterName
	return func(p *poolv1.MachineConfigPool) bool { return p.Spec.ClusterName == name }
}

// ofMachineConfig matches the pools that render a MachineConfig. A rendered config matches only its own pool.
func ofMachineConfig(o client.Object, pools []poolv1.MachineConfigPool) poolFilter {
	if name := renderedFor(o); name != "" {
		return func(p *poolv1.MachineConfigPool) bool { return name == p.Name }
	}
	names := sets.New[string]()
	for _, p := range pool.RenderedBy(pools, o.GetLabels()) {
		names.Insert(p.Name)
	}
	return func(p *poolv1.MachineConfigPool) bool { return names.Has(p.Name) }
}

// ofPoolbootConfig matches the recorded pool. A PoolbootConfig that has joined and lost its record matches every pool
// of its Cluster.
func ofPoolbootConfig(o client.Object, _ []poolv1.MachineConfigPool) poolFilter {
	config := o.(*bootstrapv1.PoolbootConfig)
	lost := record.HasJoined(config) && config.Status.PoolRole == ""
	return func(p *poolv1.MachineConfigPool) bool {
		return (lost || p.Spec.PoolRole == config.Status.PoolRole) && p.Spec.ClusterName == record.ClusterName(config)
	}
}

// countsDiffer matches updates of a PoolbootConfig that change the counts of its pool, or which hosts are next.
func countsDiffer(e event.UpdateEvent) bool {
	return update.ConfigChanged(e) || stateOf(e.ObjectOld.(*bootstrapv1.PoolbootConfig)) != stateOf(e.ObjectNew.(*bootstrapv1.PoolbootConfig))
}

// requestPools returns requests for the matching pools in the namespace of an object.
func (r *Reconciler) requestPools(filterFor func(client.Object, []poolv1.MachineConfigPool) poolFilter) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (requests []ctrl.Request) {
		pools := &poolv1.MachineConfigPoolList{}
		if err := r.Client.List(ctx, pools, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list MachineConfigPools", "namespace", o.GetNamespace())
			return nil
		}
		matches := filterFor(o, pools.Items)
		for i := range pools.Items {
			if matches(&pools.Items[i]) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
			}
		}
		return requests
	}
}
