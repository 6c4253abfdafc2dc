package main

import (
	"context"
	"fmt"
	"regexp"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/admission"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/baremetalhost"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/boot"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/certificate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/enrollment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/foreignnode"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/machineconfigpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/node"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/nodeguard"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/overlay"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/poolbootconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/token"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/workload"
)

// The cluster cache reads Clusters and their kubeconfig Secrets; the diagnostics endpoint asks who may read it.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// setupWebhooks registers the webhooks; the manager is healthy and ready once they are served.
func setupWebhooks(mgr ctrl.Manager) error {
	if err := admission.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return err
	}
	return mgr.AddHealthzCheck("webhook", started)
}

// reconciler is what every reconciler of Poolboot is to the manager.
type reconciler interface {
	SetupWithManager(context.Context, ctrl.Manager, controller.Options) error
}

// setupReconcilers registers the cluster cache, all reconcilers and the CRD migrator.
func setupReconcilers(ctx context.Context, mgr ctrl.Manager, opts *options, syncedLabels []*regexp.Regexp) error {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return fmt.Errorf("client for kubeconfig Secrets: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     kubeconfig.Secrets{Reader: secrets},
		Cache:            workload.CacheOptions(),
		Client:           workload.ClientOptions(name, opts.clusterCacheClientQPS, opts.clusterCacheClientBurst),
		WatchFilterValue: opts.watchFilter,
	}, controller.Options{MaxConcurrentReconciles: opts.clusterCacheConcurrency})
	if err != nil {
		return fmt.Errorf("cluster cache: %w", err)
	}
	clusters = workload.Confine(clusters, mgr.GetAPIReader())

	cached, live := mgr.GetClient(), mgr.GetAPIReader()
	if err := ctrlmetrics.Registry.Register(&metrics.Now{Cache: cached, Elected: mgr.Elected(), WatchFilterValue: opts.watchFilter}); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	tokens, err := enrollment.NewTokenSecrets(mgr, opts.namespace)
	if err != nil {
		return fmt.Errorf("cache of enrollment tokens' Secrets: %w", err)
	}
	for _, r := range reconcilers(cached, live, tokens, clusters, opts, syncedLabels) {
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

// reconcilers are those of Poolboot, in the order in which they are registered.
func reconcilers(cached client.Client, live client.Reader, tokens cache.Cache, clusters clustercache.ClusterCache, opts *options, syncedLabels []*regexp.Regexp) []registered {
	all := []registered{
		{&machineconfigpool.Reconciler{
			Client: cached, APIReader: live, WatchFilterValue: opts.watchFilter,
			OverlayNamespace: opts.overlayNamespace, RenderedHistory: opts.renderedConfigHistory,
		}, opts.machineConfigPoolConcurrency},
		{&poolbootconfig.Reconciler{
			Client: cached, APIReader: live, ClusterCache: clusters, WatchFilterValue: opts.watchFilter,
			ServerURL: opts.configServerURL, ServerCA: caFile(opts.configServerCAFile).read,
			OverlayNamespace: opts.overlayNamespace, SyncedLabels: syncedLabels,
		}, opts.poolbootConfigConcurrency},
		{&boot.Reconciler{
			Client: cached, APIReader: live, ClusterCache: clusters, WatchFilterValue: opts.watchFilter,
			OverlayNamespace: opts.overlayNamespace, SyncedLabels: syncedLabels,
		}, opts.bootConcurrency},
		{&node.Reconciler{
			Client: cached, ClusterCache: clusters, WatchFilterValue: opts.watchFilter,
			OverlayNamespace: opts.overlayNamespace,
		}, opts.nodeConcurrency},
		{&token.Reconciler{
			Client: cached, APIReader: live, Life: opts.tokenLife, WatchFilterValue: opts.watchFilter,
		}, opts.poolbootConfigConcurrency},
		{&overlay.Reconciler{Client: cached, OverlayNamespace: opts.overlayNamespace}, 1},
		{&foreignnode.Reconciler{Client: cached, ClusterCache: clusters, WatchFilterValue: opts.watchFilter}, opts.nodeConcurrency},
		{&nodeguard.Reconciler{Client: cached, ClusterCache: clusters, WatchFilterValue: opts.watchFilter}, opts.nodeConcurrency},
		{&enrollment.Reconciler{
			Client: cached, APIReader: live, TokenSecrets: tokens, ClusterCache: clusters, WatchFilterValue: opts.watchFilter,
			ServerURL: opts.configServerURL, ServerCA: caFile(opts.configServerCAFile).read,
		}, opts.enrollmentConcurrency},
		{&baremetalhost.Reconciler{Client: cached, APIReader: live, WatchFilterValue: opts.watchFilter}, opts.poolbootConfigConcurrency},
	}
	if opts.approveCertificates {
		all = append(all, registered{&certificate.Reconciler{
			Client: cached, APIReader: live, ClusterCache: clusters, WatchFilterValue: opts.watchFilter,
		}, opts.certificateConcurrency})
	}
	return all
}
