// Package nodeguard keeps in every workload cluster that has pools what Poolboot needs to be there: the admission
// policy that keeps a kubelet from moving its own Node into another pool, and, once hosts boot there, the rights of
// join credentials and of Nodes that renew their certificates. What is deleted or changed there, by GitOps or a restore
// of etcd, is restored. What the objects say is in bootstrap/registration and bootstrap/join. It touches no Nodes.
package nodeguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// kubeconfigRetry is when a kubeconfig that is refused is looked at again.
const kubeconfigRetry = time.Minute

// namePrefix starts the names of policies; namespace and name of the Cluster follow, so that a cluster that several
// Cluster objects lead to has the policy of each.
const namePrefix = "poolboot-node-guard."

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=list;watch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Clusters: the policy and the rights in each that has pools. It applies them when a connection
// is made, when a pool's spec changes, and when one of them is changed or deleted. In the workload cluster it needs the
// right to read and write ValidatingAdmissionPolicies, roles and their bindings; Cluster API's kubeconfig has it.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Clusters must have; empty means
	// all.
	WatchFilterValue string

	// controller is where the watches of workload clusters lead.
	controller controller.Controller
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.ClusterCache == nil {
		return errors.New("nodeguard controller: Client and ClusterCache must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("nodeguard-controller")
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "nodeguard")
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("nodeguard").
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.Or(predicates.ClusterUnpaused(mgr.GetScheme(), log), predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), log)))).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, p client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: workload.ClusterOfPool(p)}}
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("nodeguard", func(_ context.Context, cluster client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
		})).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfCluster)).
		Build(r)
	return err
}

// Reconcile applies the policy and the rights of one Cluster. Without pools it does nothing: what is guarded stays
// guarded.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster, pools, err := workload.ClusterWithPools(ctx, r.Client, req.NamespacedName, r.WatchFilterValue)
	if err != nil || len(pools) == 0 {
		return ctrl.Result{}, err
	}
	err = r.apply(ctx, req.NamespacedName, pools)
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		if workload.UnreachableReason(err) == bootstrapv1.KubeconfigInvalidReason { // told before a host asks
			r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, bootstrapv1.KubeconfigInvalidReason, "Connect", "%s", err)
			return ctrl.Result{RequeueAfter: kubeconfigRetry}, nil
		}
		return ctrl.Result{}, nil // the cluster source leads here again once there is a connection
	case meta.IsNoMatchError(err):
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, poolv1.EventNodesUnguarded, "GuardNodes",
			"The cluster has no ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1, Kubernetes 1.30): root on a host may change those labels of its "+
				"Node that NodeRestriction leaves to kubelets: upgrade the cluster, or select Nodes by node-role.kubernetes.io/ labels only")
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) apply(ctx context.Context, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	if err := r.applyRights(ctx, cluster, w); err != nil {
		return err
	}
	name := namePrefix + cluster.Namespace + "." + cluster.Name
	for _, object := range registration.Guard(name, pools) {
		if err := w.Apply(ctx, object, client.FieldOwner(join.FieldManager), client.ForceOwnership); err != nil {
			return fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return r.watch(ctx, cluster, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
}

// applyRights applies the rights to join if a host has been prepared for there: until then the boot controller gives
// them, before the first credential is made.
func (r *Reconciler) applyRights(ctx context.Context, cluster client.ObjectKey, w client.Client) error {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	needed, kubeadm := false, false
	for i := range configs.Items {
		config := &configs.Items[i]
		if record.HasNode(config) || record.HasCredential(config) {
			needed, kubeadm = true, kubeadm || config.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm && record.HasCredential(config)
		}
	}
	if needed {
		if err := join.EnsureRBAC(ctx, w, kubeadm); err != nil {
			return err
		}
	}
	return r.watch(ctx, cluster, "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
}

// watch leads back here when one of Poolboot's own objects of these kinds changes.
func (r *Reconciler) watch(ctx context.Context, cluster client.ObjectKey, kinds ...string) error {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: "nodeguard"}
	for _, kind := range kinds {
		version := rbacv1.SchemeGroupVersion
		if strings.HasPrefix(kind, "Validating") {
			version = admissionregistrationv1.SchemeGroupVersion
		}
		if err := watch.ManagedObjects(ctx, cluster, version.WithKind(kind)); err != nil {
			return err
		}
	}
	return nil
}
