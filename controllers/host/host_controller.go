// Package host reconciles PoolbootConfigs. One reconcile goes through the life of a host: its bootstrap data, its boot,
// its Node, its updates. Each part of this life is a package of phases.
package host

import (
	"context"
	"errors"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/finalizers"
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
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host/boot"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host/bootstrapdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host/node"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/pause"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools;machineconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datatemplates;metal3dataclaims;metal3datas,verbs=get
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles PoolbootConfigs.
type Reconciler struct {
	scope.Env
	// Updates has the phases of updates. It is nil if the manager offers no agent.
	Updates *update.Updates

	// hosts opens and closes the scope of a reconcile.
	hosts scope.Hosts
	// budget limits how often a host is reconciled.
	budget budget
	// data, boot and node are the phases.
	data *bootstrapdata.Phases
	boot *boot.Phases
	node *node.Phases
}

// Reconcile reconciles one PoolbootConfig.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.hosts.Reconcile(ctx, request, r.reconcile)
}

// reconcile runs the phases of a host in order. What needs no workload cluster is first and is written first: a cluster
// that does not answer does not hold up a data Secret.
func (r *Reconciler) reconcile(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
	if err := r.data.ReportDuplicates(ctx, s.Config); err != nil {
		return ctrl.Result{}, err
	}
	if s.Machine == nil && bootstrapdata.IsAwaitingMachine(s.Config) {
		return ctrl.Result{}, nil
	}
	if bootstrapdata.NeedsFinalizer(s.Config) {
		if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.Config, bootstrapv1.Finalizer); err != nil || added {
			return ctrl.Result{}, err
		}
	}
	isPaused, requeue, err := pause.EnsureCondition(ctx, r.Client, s.Cluster, s.Config)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case requeue: // the condition Paused is written
		s.Read(s.Config)
		return ctrl.Result{}, nil
	case isPaused:
		return r.reconcilePaused(ctx, s)
	case !s.Config.DeletionTimestamp.IsZero():
		result, err := r.data.Delete(ctx, s)
		s.Observed(err)
		return result, err
	}
	if wait := r.budget.wait(client.ObjectKeyFromObject(s.Config), time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	result, dataErr := r.data.Reconcile(ctx, s)
	s.Observed(dataErr)
	if err := s.Flush(ctx); err != nil { // the boot depends on what is recorded
		return result, errors.Join(dataErr, err)
	}
	bootResult, bootErr := r.boot.Reconcile(ctx, s)
	result, err = util.LowestNonZeroResult(result, bootResult), errors.Join(dataErr, bootErr, r.node.Reconcile(ctx, s))
	if r.Updates != nil {
		updateResult, updateErr := r.Updates.Reconcile(ctx, s)
		result, err = util.LowestNonZeroResult(result, updateResult), errors.Join(err, updateErr)
	}
	return result, err
}

// reconcilePaused does what cannot wait until a pause ends.
func (r *Reconciler) reconcilePaused(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
	result, err := r.boot.ReconcilePaused(ctx, s)
	if r.Updates != nil {
		updateResult, updateErr := r.Updates.EndPause(ctx, s)
		result, err = util.LowestNonZeroResult(result, updateResult), errors.Join(err, updateErr)
	}
	return result, err
}

// setPhases sets the phases. secrets reads data Secrets from a cache, and nodes receives the events of the watches on
// Nodes.
func (r *Reconciler) setPhases(secrets client.Reader, nodes controller.Controller) {
	r.hosts = scope.Hosts{Client: r.Client, Live: r.APIReader, WatchFilterValue: r.WatchFilterValue}
	r.budget = newBudget(hostBurst)
	r.data = &bootstrapdata.Phases{Env: r.Env, Secrets: secrets}
	r.data.Init()
	r.boot = &boot.Phases{Env: r.Env}
	r.boot.Init()
	r.node = &node.Phases{Env: r.Env, Controller: nodes}
}

// SetupWithManager adds the controller to a manager. It watches every object that a phase depends on. The watch on
// BareMetalHosts starts when Metal3 is installed, and that on HardwareData when the first host needs it.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.HostSecrets == nil || r.NetworkData == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil || r.OverlayNamespace == "" {
		return errors.New("host controller: Client, APIReader, HostSecrets, NetworkData, ClusterCache, ServerURL, ServerCA and OverlayNamespace must be set")
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
		WatchesRawSource(source.Kind(r.HostSecrets, client.Object(secretmetadata.New()), handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, secret client.Object) []ctrl.Request {
				return workload.ConfigsOfNetworkData(ctx, r.Client, secret)
			}))).
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
	if err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, workload.AwaitedNodeIndex, workload.AwaitedNodes); err != nil {
		return err
	}
	if err := latecrd.WhenServed(mgr, "host", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error {
		return mgr.GetFieldIndexer().IndexField(ctx, &bmov1alpha1.BareMetalHost{}, barehost.NetworkDataIndex, barehost.IndexNetworkData)
	}); err != nil {
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
