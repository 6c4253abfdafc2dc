// Package nodeguard maintains the objects that Poolboot needs in every workload cluster with pools: the admission
// policy that prevents a kubelet from moving its own Node to another pool and, after hosts boot there, the RBAC objects
// for join credentials and for Nodes that renew their certificates. It restores these objects if they are changed or
// deleted, for example by GitOps or by a restore of etcd. Their content is in bootstrap/registration and
// bootstrap/join.
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

// kubeconfigRetry is when an invalid kubeconfig is checked again.
const kubeconfigRetry = time.Minute

// namePrefix is the prefix of the names of policies. The namespace and name of the Cluster follow, so a workload
// cluster with several Cluster objects has one policy for each.
const namePrefix = "poolboot-node-guard."

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=list;watch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Clusters. It applies the policy and the RBAC objects to each Cluster with pools when the
// connection is established, when the spec of a pool changes, and when one of the objects is changed or deleted. In the
// workload cluster it needs the right to read and write ValidatingAdmissionPolicies, roles and their bindings. Cluster
// API's kubeconfig has it.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Clusters must have; empty means
	// all.
	WatchFilterValue string

	// controller gets the requests of the watches in workload clusters.
	controller controller.Controller
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.ClusterCache == nil {
		return errors.New("nodeguard controller: Client and ClusterCache must be set")
	}
	r.Recorder = mgr.GetEventRecorder("nodeguard-controller")
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "nodeguard")
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("nodeguard").
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.Or(predicates.ClusterUnpaused(mgr.GetScheme(), log), predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), log)))).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(workload.RequestClusterOfPool),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("nodeguard", workload.RequestCluster)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfCluster)).
		Build(r)
	return err
}

// Reconcile applies the policy and the RBAC objects of a Cluster. It does nothing for a Cluster without pools: an
// existing policy stays.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster, pools, err := workload.ClusterWithPools(ctx, r.Client, req.NamespacedName, r.WatchFilterValue)
	if err != nil || len(pools) == 0 {
		return ctrl.Result{}, err
	}
	err = r.apply(ctx, req.NamespacedName, pools)
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		if workload.UnreachableReason(err) == bootstrapv1.KubeconfigInvalidReason { // reported before a host boots
			r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, bootstrapv1.KubeconfigInvalidReason, "Connect", "%s", err)
			return ctrl.Result{RequeueAfter: kubeconfigRetry}, nil
		}
		return ctrl.Result{}, nil // the cluster source triggers a reconcile after the connection is established
	case meta.IsNoMatchError(err):
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, poolv1.EventNodesUnguarded, "GuardNodes",
			"The cluster has no ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1, Kubernetes 1.30): root on a host can change the labels of its "+
				"Node that NodeRestriction allows kubelets to set: upgrade the cluster, or select Nodes by node-role.kubernetes.io/ labels only")
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// apply applies the RBAC objects and the policy.
func (r *Reconciler) apply(ctx context.Context, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	if err := r.applyRBAC(ctx, cluster, w); err != nil {
		return err
	}
	name := namePrefix + cluster.Namespace + "." + cluster.Name
	for _, object := range registration.Guard(name, pools) {
		if err := w.Apply(ctx, object, client.FieldOwner(join.FieldManager), client.ForceOwnership); err != nil {
			return fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return r.watch(ctx, cluster, name, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
}

// applyRBAC applies the RBAC objects for joins, if a boot was prepared for the cluster. The host controller applies
// them before it creates the first join credential.
func (r *Reconciler) applyRBAC(ctx context.Context, cluster client.ObjectKey, w client.Client) error {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	booted, kubeadm := false, false
	for i := range configs.Items {
		config := &configs.Items[i]
		if record.HasNode(config) || record.HasCredential(config) {
			booted, kubeadm = true, kubeadm || config.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm && record.HasCredential(config)
		}
	}
	if booted {
		if err := join.EnsureRBAC(ctx, w, kubeadm); err != nil {
			return err
		}
	}
	return r.watch(ctx, cluster, "", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
}

// watch watches the objects of some kinds that Poolboot manages, or those with a name.
func (r *Reconciler) watch(ctx context.Context, cluster client.ObjectKey, name string, kinds ...string) error {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: "nodeguard"}
	for _, kind := range kinds {
		version := rbacv1.SchemeGroupVersion
		if strings.HasPrefix(kind, "Validating") {
			version = admissionregistrationv1.SchemeGroupVersion
		}
		if err := watch.ManagedObjects(ctx, cluster, version.WithKind(kind), name); err != nil {
			return err
		}
	}
	return nil
}
