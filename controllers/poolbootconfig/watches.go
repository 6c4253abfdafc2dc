package poolbootconfig

import (
	"context"
	"errors"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil || r.OverlayNamespace == "" {
		return errors.New("poolbootconfig controller: Client, APIReader, ClusterCache, ServerURL, ServerCA and OverlayNamespace must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("poolbootconfig-controller")
	}
	if r.Secrets == nil {
		r.Secrets = mgr.GetCache()
	}
	r.duplicates = lru.New(maxDuplicates)
	if err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, pointerIndex, pointerOf); err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "poolbootconfig")
	controller, err := ctrl.NewControllerManagedBy(mgr).
		Named("poolbootconfig").
		For(&bootstrapv1.PoolbootConfig{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(workload.ConfigOfMachine),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(workload.MapToConfigs(r.Client, anyConfig)),
			builder.WithPredicates(predicates.Any(mgr.GetScheme(), log,
				predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(), log),
				predicates.ClusterControlPlaneInitialized(mgr.GetScheme(), log)))).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(workload.MapToConfigs(r.Client, hasNoNode)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workload.PoolChanged})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.configOfDataSecret)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("poolbootconfig", workload.MapToConfigs(r.Client, waitsForConnection))).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfConfig(r.Client))).
		Build(r)
	if err != nil {
		return err
	}
	// watch starts a watch on a kind of Metal3 after it is installed.
	watch := func(kind string, object client.Object, configs func(context.Context, client.Reader, client.Object) []ctrl.Request) error {
		return latecrd.WhenServed(mgr, "poolbootconfig", bmov1alpha1.GroupVersion.WithKind(kind), func() error {
			return controller.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []ctrl.Request {
				return configs(ctx, r.Client, object)
			})))
		})
	}
	r.watchHardware = sync.OnceValue(func() error { return watch("HardwareData", &bmov1alpha1.HardwareData{}, workload.ConfigOfHardware) })
	return watch("BareMetalHost", &bmov1alpha1.BareMetalHost{}, workload.ConfigOfHost)
}

// configOfDataSecret maps a data Secret to its config if the Secret is recorded, or if the condition reports a problem
// with it, as long as the host can need it.
func (r *Reconciler) configOfDataSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	config, key := &bootstrapv1.PoolbootConfig{}, client.ObjectKeyFromObject(secret)
	if err := r.Client.Get(ctx, key, config); err != nil || record.HasJoined(config) {
		return nil
	}
	c := conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)
	hasProblem := outlook.IsWrong(c) || c != nil && c.Reason == bootstrapv1.WaitingForSecretDeletionReason
	if !isDataSecretRecorded(config) && !hasProblem {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}

func anyConfig(*bootstrapv1.PoolbootConfig) bool { return true }

// hasNoNode reports whether pools still affect a config.
func hasNoNode(config *bootstrapv1.PoolbootConfig) bool { return !record.HasNode(config) }

// waitsForConnection reports whether a config needs its workload cluster.
func waitsForConnection(config *bootstrapv1.PoolbootConfig) bool {
	return !config.DeletionTimestamp.IsZero() || config.Spec.IsInline() && config.Status.DataSecretName == ""
}
