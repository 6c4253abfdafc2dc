// Package controllers registers Poolboot's reconcilers and webhooks with a manager. Each reconciler has its own package
// and imports no other one. Code that several of them need is in internal/.
package controllers

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/admission"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/baremetalhost"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/certificate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/clusternodes"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/enrollment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/machineconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/machineconfigpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/overlay"
)

// The cluster cache reads Clusters and their kubeconfig Secrets. The diagnostics endpoint authenticates and authorizes
// its clients.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// SetupWebhooks registers the webhooks. The manager is healthy and ready once they are served.
func SetupWebhooks(mgr ctrl.Manager) error {
	if err := admission.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return err
	}
	return mgr.AddHealthzCheck("webhook", started)
}

// reconciler is the interface of Poolboot's reconcilers.
type reconciler interface {
	SetupWithManager(context.Context, ctrl.Manager, controller.Options) error
}

// SetupReconcilers registers the cluster cache, all reconcilers and the CRD migrator.
func SetupReconcilers(ctx context.Context, mgr ctrl.Manager, opts *Options) error {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return fmt.Errorf("client for kubeconfig Secrets: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     kubeconfig.Secrets{Reader: secrets},
		Cache:            workload.CacheOptions(),
		Client:           workload.ClientOptions(opts.UserAgent, opts.ClusterCacheQPS, opts.ClusterCacheBurst),
		WatchFilterValue: opts.WatchFilterValue,
	}, fairqueue.OptionsForClusters(controller.Options{MaxConcurrentReconciles: opts.Concurrency.ClusterCache}))
	if err != nil {
		return fmt.Errorf("cluster cache: %w", err)
	}
	if stoppable, ok := clusters.(interface{ Shutdown() }); ok && opts.StopsConnections {
		context.AfterFunc(ctx, stoppable.Shutdown)
	}
	clusters = workload.Restrict(clusters, mgr.GetAPIReader())

	cached, live := mgr.GetClient(), mgr.GetAPIReader()
	registry := opts.Metrics
	if registry == nil {
		registry = ctrlmetrics.Registry
	}
	if err := registry.Register(&metrics.StateCollector{Cache: cached, Elected: mgr.Elected(), WatchFilterValue: opts.WatchFilterValue}); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	tokens, err := enrollment.NewTokenSecrets(mgr, opts.Namespace)
	if err != nil {
		return fmt.Errorf("cache of enrollment tokens' Secrets: %w", err)
	}
	secretMetadata, err := secretmetadata.NewCache(mgr, cache.Options{DefaultNamespaces: map[string]cache.Config{opts.OverlayNamespace: {}}})
	if err != nil {
		return err
	}
	hostSecrets, err := secretmetadata.NewHostSecrets(mgr, opts.Namespace)
	if err != nil {
		return err
	}
	for _, r := range reconcilers(cached, live, tokens, secretMetadata, hostSecrets, clusters, opts) {
		if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: r.concurrency}); err != nil {
			return fmt.Errorf("controllers: %w", err)
		}
	}
	return setupMigration(ctx, mgr, opts)
}

// registered is a reconciler with the number of its workers.
type registered struct {
	reconciler
	concurrency int
}

// reconcilers returns Poolboot's reconcilers, in the order in which they are registered.
func reconcilers(cached client.Client, live client.Reader, tokens, secretMetadata, hostSecrets cache.Cache, clusters clustercache.ClusterCache, opts *Options) []registered {
	networkData := barehost.NewNetworkData(live, hostSecrets, clock.RealClock{})
	env := scope.Env{
		Client: cached, APIReader: live, HostSecrets: hostSecrets, NetworkData: networkData, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue,
		ServerURL: opts.ServerURL, ServerCA: opts.ServerCA, OverlayNamespace: opts.OverlayNamespace,
		Offer: opts.offer, TokenLifetime: opts.TokenLife, SyncedLabels: opts.SyncedLabels,
	}
	var updates *update.Updates
	if len(opts.Agent.SHA512) > 0 {
		updates = &update.Updates{Env: env, Secrets: secretMetadata}
		updates.Init()
	}
	all := []registered{
		{&machineconfigpool.Reconciler{
			Client: cached, APIReader: live, WatchFilterValue: opts.WatchFilterValue,
			OverlayNamespace: opts.OverlayNamespace, RenderedHistory: opts.RenderedHistory, Updates: updates,
		}, opts.Concurrency.MachineConfigPool},
		{&machineconfig.Reconciler{Client: cached, WatchFilterValue: opts.WatchFilterValue}, 1},
		{&host.Reconciler{Env: env, Updates: updates}, opts.Concurrency.Host},
		{&overlay.Reconciler{Client: cached, OverlayNamespace: opts.OverlayNamespace, Secrets: secretMetadata}, 1},
		{&clusternodes.Reconciler{
			Client: cached, APIReader: live, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue, UpdatesHosts: updates != nil,
		}, opts.Concurrency.Host},
		{&enrollment.Reconciler{
			Client: cached, APIReader: live, TokenSecrets: tokens, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue,
			ServerURL: opts.ServerURL, ServerCA: opts.ServerCA,
		}, opts.Concurrency.Enrollment},
		{&baremetalhost.Reconciler{Client: cached, APIReader: live, WatchFilterValue: opts.WatchFilterValue}, opts.Concurrency.Host},
	}
	if opts.ApproveCertificates {
		all = append(all, registered{&certificate.Reconciler{
			Client: cached, APIReader: live, NetworkData: networkData, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue,
		}, opts.Concurrency.Certificate})
	}
	return all
}

// AddToScheme adds all kinds that the reconcilers read or write, except those of the Metal3 provider, which are
// unstructured.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		controlplanev1.AddToScheme, bmov1alpha1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme)
	return builder.AddToScheme(scheme)
}

// The migrator can patch Poolboot's own CRDs, which RBAC lists by name, and writes each of their objects without a
// change. For kinds that the manager does not change otherwise, the policy manager-storage-migration in config/rbac
// enforces that.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,verbs=patch,resourceNames=poolbootconfigs.bootstrap.cluster.x-k8s.io;poolbootconfigtemplates.bootstrap.cluster.x-k8s.io;enrollments.poolboot.io;machineconfigpools.poolboot.io;machineconfigs.poolboot.io
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs;poolbootconfigtemplates,verbs=get;list;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments;machineconfigpools;machineconfigs,verbs=get;list;patch
// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments/status;machineconfigpools/status;machineconfigs/status,verbs=patch

// MigrationPhases are the valid values of Options.SkipCRDMigrationPhases.
var MigrationPhases = []crdmigrator.Phase{crdmigrator.StorageVersionMigrationPhase, crdmigrator.CleanupManagedFieldsPhase}

// migrated returns the kinds of Poolboot's CRDs. Objects with a status are written through the status subresource. This
// bypasses the webhooks, which could refuse an object that was valid when it was created. All objects are read from the
// API server, because the cache has no managed fields and, with --namespace, not all objects.
func migrated() map[client.Object]crdmigrator.ByObjectConfig {
	byStatus := crdmigrator.ByObjectConfig{UseStatusForStorageVersionMigration: true}
	return map[client.Object]crdmigrator.ByObjectConfig{
		&bootstrapv1.PoolbootConfig{}:         byStatus,
		&bootstrapv1.PoolbootConfigTemplate{}: {},
		&poolv1.Enrollment{}:                  byStatus,
		&poolv1.MachineConfig{}:               byStatus,
		&poolv1.MachineConfigPool{}:           byStatus,
	}
}

// setupMigration registers Cluster API's migrator of stored objects. It has one worker, to limit the load on the API
// server during an upgrade.
func setupMigration(ctx context.Context, mgr ctrl.Manager, opts *Options) error {
	migrator := &crdmigrator.CRDMigrator{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Config: migrated()}
	for _, phase := range opts.SkipCRDMigrationPhases {
		migrator.SkipCRDMigrationPhases = append(migrator.SkipCRDMigrationPhases, crdmigrator.Phase(phase))
	}
	if err := migrator.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 1}); err != nil {
		return fmt.Errorf("CRD migrator: %w", err)
	}
	return nil
}
