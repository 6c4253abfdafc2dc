package clusterapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
)

// Options are the options of Cluster API's core.
type Options struct {
	// SyncedLabels are the regular expressions of additional Machine labels that are synced to Nodes, as in Cluster
	// API's --additional-sync-machine-labels.
	SyncedLabels []*regexp.Regexp
	// Concurrency is the number of workers per kind. Default: 2. Cluster API's default is 100.
	Concurrency int
	// Log is the core's logger. Default: controller-runtime's global logger.
	Log logr.Logger
}

// Core is a running core of Cluster API.
type Core struct {
	running *manager.Running
}

// Start installs Cluster API's webhooks, starts its core (Cluster, Machine, MachineSet, MachineDeployment and
// MachineHealthCheck) and waits until it reconciles and the API server calls its webhooks. It requires Install.
func Start(ctx context.Context, cfg *rest.Config, options Options) (*Core, error) {
	// Without rate limits, which only delay tests.
	gates := map[string]bool{string(feature.ReconcilerRateLimiting): false, string(feature.MachineTaintPropagation): true}
	if err := feature.MutableGates.SetFromMap(gates); err != nil {
		return nil, err
	}
	ca, err := loopback.NewCA("cluster-api-webhooks")
	if err != nil {
		return nil, err
	}
	port, err := loopback.FreePort()
	if err != nil {
		return nil, err
	}
	mgr, err := newManager(cfg, options.Log, ca, port)
	if err != nil {
		return nil, err
	}
	if err := setUp(ctx, mgr, options); err != nil {
		return nil, fmt.Errorf("set up Cluster API's core: %w", err)
	}
	running, err := manager.Start(ctx, mgr)
	if err != nil {
		return nil, fmt.Errorf("start Cluster API's core: %w", err)
	}
	core := &Core{running: running}
	if err := installOwnWebhooks(ctx, cfg, "https://"+loopback.Address(port), ca.PEM()); err != nil {
		return nil, errors.Join(err, core.Stop())
	}
	return core, nil
}

// installOwnWebhooks installs Cluster API's webhooks and waits until the API server calls them.
func installOwnWebhooks(ctx context.Context, cfg *rest.Config, url string, ca []byte) error {
	dir, err := clusterAPIDir(ctx)
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "core", "config", "webhook", "manifests.yaml"))
	if err != nil {
		return err
	}
	configurations, err := yaml.ToUnstructured(manifest)
	if err != nil {
		return fmt.Errorf("webhooks of Cluster API: %w", err)
	}
	if err := InstallWebhooks(ctx, cfg, configurations, url, ca); err != nil {
		return err
	}
	return waitForDefaulting(ctx, cfg)
}

// Stop stops the core and waits for it. Stop it before its control plane.
func (c *Core) Stop() error { return c.running.Stop() }

func newManager(cfg *rest.Config, log logr.Logger, ca *loopback.CA, port int) (ctrl.Manager, error) {
	pair, err := ca.Server()
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	serve := func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	scheme := Scheme()
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Logger: log,
		// Other managers in this process have controllers with the same names.
		Controller:              config.Controller{UsePriorityQueue: ptr.To(true), SkipNameValidation: ptr.To(true), CacheSyncTimeout: manager.CacheSyncTimeout},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(manager.GracefulShutdownTimeout),
		Cache:                   setup.ManagerCacheOptions(scheme, uniqueName(controllerName), "", 10*time.Minute),
		Client:                  setup.ManagerClientOptions(),
		WebhookServer:           webhook.NewServer(webhook.Options{Host: loopback.Host, Port: port, TLSOpts: []func(*tls.Config){serve}}),
	})
}

var started atomic.Int32

// uniqueName returns a unique informer name for a manager's name, because informer names must be unique in a process.
func uniqueName(name string) string { return fmt.Sprintf("%s-%d", name, started.Add(1)) }

// setUp registers the core's indexes, reconcilers and webhooks.
func setUp(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return err
	}
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	clusterCache, err := setUpClusterCache(ctx, mgr, clustercache.Options{
		SecretClient: secrets, Cache: setup.ClusterCacheCacheOptions(), Client: setup.ClusterCacheClientOptions(controllerName, workloadQPS, workloadBurst),
	}, options.controllers())
	if err != nil {
		return err
	}
	if err := setUpReconcilers(ctx, mgr, clusterCache, options); err != nil {
		return err
	}
	return setUpWebhooks(mgr, clusterCache)
}
