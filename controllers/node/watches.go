package node

import (
	"context"
	"errors"
	"maps"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.ClusterCache == nil || r.OverlayNamespace == "" {
		return errors.New("node controller: Client, ClusterCache and OverlayNamespace must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("node-controller")
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "node")
	configs := workload.MapToConfigs(r.Client, func(*bootstrapv1.PoolbootConfig) bool { return true })
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&bootstrapv1.PoolbootConfig{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(configs),
			builder.WithPredicates(predicates.Any(mgr.GetScheme(), log,
				predicates.ClusterUnpaused(mgr.GetScheme(), log),
				predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), log)))).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(configs),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workload.PoolChanged})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("node", configs)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfConfig(r.Client))).
		Build(r)
	if err != nil {
		return err
	}
	return latecrd.WhenServed(mgr, "node", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error {
		return r.controller.Watch(source.Kind[client.Object](mgr.GetCache(), &bmov1alpha1.BareMetalHost{},
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, bmh client.Object) []ctrl.Request {
				return workload.ConfigOfHost(ctx, r.Client, bmh)
			}), hostChanged()))
	})
}

// hostChanged selects a BareMetalHost that was created, as by clusterctl move, which gives it another UID. A host
// without a Machine is recognized as the host of a Node only by its state, which the baremetal-operator restores after
// the move.
func hostChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*bmov1alpha1.BareMetalHost), e.ObjectNew.(*bmov1alpha1.BareMetalHost)
			return after.Spec.ConsumerRef == nil && before.Status.Provisioning.State != after.Status.Provisioning.State
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// nodeChanged selects the changes of a Node that a decision depends on. It ignores the heartbeats of the kubelet.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return before.UID != after.UID ||
			before.ResourceVersion == after.ResourceVersion ||
			util.IsNodeReady(before) != util.IsNodeReady(after) ||
			!maps.Equal(before.Labels, after.Labels) ||
			!maps.Equal(before.Annotations, after.Annotations) ||
			!equality.Semantic.DeepEqual(before.Spec, after.Spec)
	}}
}
