// Package clusternodes maintains what Poolboot needs in every workload cluster with pools, and checks its Nodes. It
// applies the admission policy that prevents a kubelet from moving its own Node to another pool and, after hosts boot
// there, the RBAC objects for join credentials and for Nodes that renew their certificates. It restores these objects
// if they are changed or deleted, for example by GitOps or by a restore of etcd. Their content is in
// bootstrap/registration and bootstrap/join. It creates an event about a Node that Poolboot did not boot and whose
// labels no pool can satisfy, and the PoolbootConfig that adopts such a Node if its pool says so. It does not change
// these Nodes.
package clusternodes

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Clusters that have pools: when the connection is established, when the spec of a pool changes,
// when one of the objects in the workload cluster is changed or deleted, when the labels of a Node change that Poolboot
// did not boot, when a Machine has joined, is deleted or has a hook, and when a PoolbootConfig is deleted. In the
// workload cluster it needs the right to read and write ValidatingAdmissionPolicies, roles and their bindings. Cluster
// API's kubeconfig has it.
type Reconciler struct {
	// Client reads from the manager's cache, and creates PoolbootConfigs.
	Client client.Client
	// APIReader reads pools live.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Clusters must have; empty means
	// all.
	WatchFilterValue string
	// UpdatesHosts is set if the manager offers an agent, so that its pools update hosts.
	UpdatesHosts bool

	// controller gets the requests of the watches in workload clusters.
	controller controller.Controller
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil {
		return errors.New("clusternodes controller: Client, APIReader and ClusterCache must be set")
	}
	r.Recorder = mgr.GetEventRecorder("clusternodes-controller")
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "clusternodes")
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("clusternodes").
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.Or(predicates.ClusterUnpaused(mgr.GetScheme(), log), predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), log)))).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(workload.RequestClusterOfPool),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(clusterOfMachine), builder.WithPredicates(predicate.Or(hasJoined(), hasHook()))).
		Watches(&bootstrapv1.PoolbootConfig{}, handler.EnqueueRequestsFromMapFunc(clusterOfConfig), builder.WithPredicates(isDeleted())).
		WatchesRawSource(r.ClusterCache.GetClusterSource("clusternodes", workload.RequestItself)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfCluster)).
		Build(r)
	return err
}

// Reconcile guards the Nodes of a Cluster, and checks and adopts those that Poolboot did not boot. For a Cluster
// without pools, it only removes hooks: an existing policy stays.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster, pools, err := workload.ClusterWithPools(ctx, r.Client, req.NamespacedName, r.WatchFilterValue)
	if err != nil || !workload.HasNodes(cluster, r.WatchFilterValue) {
		return ctrl.Result{}, err
	}
	if err := r.followSlots(ctx, req.NamespacedName, pools); err != nil || len(pools) == 0 {
		return ctrl.Result{}, err
	}
	again, err := r.guard(ctx, cluster, pools)
	w, nodes, failed := r.watchNodes(ctx, req.NamespacedName)
	switch {
	case failed == nil:
		err = errors.Join(err, checkForeignNodes(ctx, w, req.NamespacedName, nodes, pools), r.adoptNodes(ctx, cluster, nodes, pools))
	case !errors.Is(failed, clustercache.ErrClusterNotConnected):
		err = errors.Join(err, failed)
	}
	return ctrl.Result{RequeueAfter: again}, err
}
