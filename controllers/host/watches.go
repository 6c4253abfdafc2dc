package host

import (
	"context"
	"errors"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host/boot"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host/bootstrapdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// SetupWithManager adds the controller to a manager. It watches every object that a phase depends on. The watch on
// BareMetalHosts starts when Metal3 is installed, and that on HardwareData when the first host needs it.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil || r.OverlayNamespace == "" {
		return errors.New("host controller: Client, APIReader, ClusterCache, ServerURL, ServerCA and OverlayNamespace must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("poolboot-host")
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "host")
	all := workload.MapToConfigs(r.Client, func(*bootstrapv1.PoolbootConfig) bool { return true })
	watches := ctrl.NewControllerManagedBy(mgr).
		Named("host").
		For(&bootstrapv1.PoolbootConfig{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(workload.ConfigOfMachine), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(all),
			builder.WithPredicates(predicates.Any(mgr.GetScheme(), log,
				predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(), log),
				predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), log)))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(workload.MapToConfigs(r.Client, boot.NeedsCluster)),
			builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))). // label rules can read them
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(workload.MapToConfigs(r.Client, hasNotJoined)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workload.PoolChanged})).
		Watches(&poolv1.MachineConfigPool{}, fairqueue.EnqueueLow(workload.MapToConfigs(r.Client, record.HasJoined)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workload.PoolChanged})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.configOfDataSecret)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("host", all)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfConfig(r.Client)))
	if r.Updates != nil {
		watches = r.Updates.WatchHosts(watches)
	}
	hosts, err := watches.Build(r)
	if err != nil {
		return err
	}
	// watch starts a watch on a kind of Metal3 after it is installed.
	watch := func(kind string, object client.Object, configs func(context.Context, client.Reader, client.Object) []ctrl.Request) error {
		return latecrd.WhenServed(mgr, "host", bmov1alpha1.GroupVersion.WithKind(kind), func() error {
			return hosts.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []ctrl.Request {
				return configs(ctx, r.Client, object)
			})))
		})
	}
	r.WatchHardware = sync.OnceValue(func() error { return watch("HardwareData", &bmov1alpha1.HardwareData{}, workload.ConfigOfHardware) })
	r.setPhases(mgr.GetCache(), hosts)
	if err := bootstrapdata.IndexPointers(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return watch("BareMetalHost", &bmov1alpha1.BareMetalHost{}, workload.ConfigOfHost)
}

func hasNotJoined(config *bootstrapv1.PoolbootConfig) bool { return !record.HasJoined(config) }

// configOfDataSecret maps a data Secret to its config as long as the host can need it.
func (r *Reconciler) configOfDataSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	config, key := &bootstrapv1.PoolbootConfig{}, client.ObjectKeyFromObject(secret)
	if err := r.Client.Get(ctx, key, config); err != nil || !bootstrapdata.NeedsSecret(config) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}
