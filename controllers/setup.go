// Package controllers registers Poolboot's reconcilers and webhooks with a manager. Each reconciler has its own package
// and imports no other one. Code that several of them need is in internal/.
package controllers

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

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
	for _, r := range reconcilers(cached, live, tokens, secretMetadata, clusters, opts) {
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
func reconcilers(cached client.Client, live client.Reader, tokens, secretMetadata cache.Cache, clusters clustercache.ClusterCache, opts *Options) []registered {
	env := scope.Env{
		Client: cached, APIReader: live, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue,
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
		{&clusternodes.Reconciler{Client: cached, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue}, opts.Concurrency.Host},
		{&enrollment.Reconciler{
			Client: cached, APIReader: live, TokenSecrets: tokens, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue,
			ServerURL: opts.ServerURL, ServerCA: opts.ServerCA,
		}, opts.Concurrency.Enrollment},
		{&baremetalhost.Reconciler{Client: cached, APIReader: live, WatchFilterValue: opts.WatchFilterValue}, opts.Concurrency.Host},
	}
	if opts.ApproveCertificates {
		all = append(all, registered{&certificate.Reconciler{
			Client: cached, APIReader: live, ClusterCache: clusters, WatchFilterValue: opts.WatchFilterValue,
		}, opts.Concurrency.Certificate})
	}
	return all
}
