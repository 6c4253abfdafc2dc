package boot

import (
	"context"
	"errors"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// SetupWithManager adds the controller to a manager. It watches every object that a boot can wait for. The watch on
// BareMetalHosts starts when Metal3 is installed.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.OverlayNamespace == "" {
		return errors.New("boot controller: Client, APIReader, ClusterCache and OverlayNamespace must be set")
	}
	r.cloudProviders = lru.New(maxCloudProviders)
	r.rendered = assignments.NewRenderedConfigs(r.Client)
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("poolboot-boot")
	}
	logger := log.FromContext(ctx).WithValues("controller", "boot")
	configs := workload.MapToConfigs(r.Client, needsCluster)
	boots, err := ctrl.NewControllerManagedBy(mgr).
		Named("boot").
		For(&bootstrapv1.PoolbootConfig{}, builder.WithPredicates(needsChanged())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(workload.ConfigOfMachine)).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(configs),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workload.PoolChanged})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(configs),
			builder.WithPredicates(predicate.Or(predicates.ClusterUnpaused(mgr.GetScheme(), logger),
				predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))). // label rules can read them
		WatchesRawSource(r.ClusterCache.GetClusterSource("boot", configs)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfConfig(r.Client))).
		Build(r)
	if err != nil {
		return err
	}
	watch := func(object client.Object, config func(context.Context, client.Reader, client.Object) []ctrl.Request) error {
		return boots.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, object client.Object) []ctrl.Request { return config(ctx, r.Client, object) })))
	}
	r.watchHardware = sync.OnceValue(func() error { return watch(&bmov1alpha1.HardwareData{}, workload.ConfigOfHardware) })
	return latecrd.WhenServed(mgr, "boot", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error {
		return watch(&bmov1alpha1.BareMetalHost{}, workload.ConfigOfHost)
	})
}

// needsChanged selects the PoolbootConfigs that need something new, and those whose host sent another request. It
// ignores the changes that this controller writes to the status.
func needsChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return needOf(e.Object.(*bootstrapv1.PoolbootConfig)) != nothing },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*bootstrapv1.PoolbootConfig), e.ObjectNew.(*bootstrapv1.PoolbootConfig)
			need, previous := needOf(after), needOf(before)
			return need != nothing && (previous == nothing ||
				previous != need && (need == renewal || need == adoption) ||
				before.ResourceVersion == after.ResourceVersion ||
				before.Generation != after.Generation ||
				annotations.HasPaused(before) != annotations.HasPaused(after) ||
				len(before.OwnerReferences) != len(after.OwnerReferences) ||
				!before.Status.Requests.RequestedTime.Equal(after.Status.Requests.RequestedTime))
		},
	}
}

// needsCluster reports whether the next step for a config depends on its Cluster or on a pool, and not only on its
// host.
func needsCluster(config *bootstrapv1.PoolbootConfig) bool {
	need := needOf(config)
	return need != nothing && need != announcement && need != expiration
}
