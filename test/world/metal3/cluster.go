package metal3

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// clusterReconciler reconciles Metal3Clusters. A Metal3Cluster is provisioned as soon as it has an owner and an
// endpoint.
type clusterReconciler struct {
	client.Client
}

func (r *clusterReconciler) setUp(mgr ctrl.Manager) error {
	toMetal3Cluster := util.ClusterToInfrastructureMapFunc(context.Background(),
		infrav1.GroupVersion.WithKind("Metal3Cluster"), mgr.GetClient(), &infrav1.Metal3Cluster{})
	return ctrl.NewControllerManagedBy(mgr).
		For(&infrav1.Metal3Cluster{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(toMetal3Cluster)).
		Complete(r)
}

func (r *clusterReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	metal3Cluster := &infrav1.Metal3Cluster{}
	if err := r.Get(ctx, request.NamespacedName, metal3Cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, metal3Cluster.ObjectMeta)
	if err != nil || cluster == nil || annotations.IsPaused(cluster, metal3Cluster) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	helper, err := patch.NewHelper(metal3Cluster, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	if metal3Cluster.Spec.ControlPlaneEndpoint.IsValid() {
		metal3Cluster.Status.Initialization.Provisioned = ptr.To(true)
		conditions.Set(metal3Cluster, metav1.Condition{
			Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ReadyReason,
		})
	} else {
		conditions.Set(metal3Cluster, metav1.Condition{
			Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotReadyReason,
			Message: "spec.controlPlaneEndpoint needs host and port",
		})
	}
	return ctrl.Result{}, helper.Patch(ctx, metal3Cluster)
}
