package clusterapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/reconcilers/kubeadmcontrolplane"
	controlplanesetup "sigs.k8s.io/cluster-api/controlplane/kubeadm/setup"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
)

// Names of Cluster API's kubeadm providers in user agents.
const (
	kubeadmBootstrap    = "cluster-api-kubeadm-bootstrap"
	kubeadmControlPlane = "cluster-api-kubeadm-control-plane"
)

// Defaults of the flags of both providers.
const (
	kubeadmConcurrency = 100
	kubeadmQPS         = 100
	kubeadmBurst       = 200
	etcdDialTimeout    = 10 * time.Second
	etcdCallTimeout    = 15 * time.Second
)

// controlPlaneSync is the interval of full reconciles of the control plane provider. Its default is 10 minutes. As it
// does not watch Nodes, it takes that long to see that one is reachable again that was unreachable.
const controlPlaneSync = 20 * time.Second

// KubeadmProvider is one of Cluster API's two running kubeadm providers.
type KubeadmProvider struct {
	running *manager.Running
}

// Stop stops the provider and waits for it.
func (k *KubeadmProvider) Stop() error { return k.running.Stop() }

// StartKubeadmBootstrap installs the CRDs of Cluster API's kubeadm bootstrap provider (CABPK) and starts its real
// reconciler in this process, with its default limits and without its webhooks, which only validate and set defaults.
func StartKubeadmBootstrap(ctx context.Context, cfg *rest.Config, options Options) (*KubeadmProvider, error) {
	cache, workers := setup.ManagerCacheOptions(Scheme(), uniqueName(kubeadmBootstrap), "", 10*time.Minute), controller.Options{MaxConcurrentReconciles: kubeadmConcurrency}
	return startKubeadmProvider(ctx, cfg, "bootstrap", cache, setup.ManagerClientOptions(), options, func(mgr ctrl.Manager) error {
		secrets, err := setup.CreateSecretCachingClient(mgr)
		if err != nil {
			return err
		}
		clusterCache, err := setUpClusterCache(ctx, mgr, clustercache.Options{
			SecretClient: secrets, Cache: setup.ClusterCacheCacheOptions(), Client: setup.ClusterCacheClientOptions(kubeadmBootstrap, workloadQPS, workloadBurst),
		}, workers)
		if err != nil {
			return err
		}
		return (&kubeadmconfig.Reconciler{
			Client: mgr.GetClient(), SecretCachingClient: secrets, APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
			TokenTTL: kubeadmconfig.DefaultTokenTTL,
		}).SetupWithManager(ctx, mgr, workers)
	})
}

// StartKubeadmControlPlane does the same with Cluster API's kubeadm control plane provider (KCP), which needs the
// bootstrap provider.
func StartKubeadmControlPlane(ctx context.Context, cfg *rest.Config, options Options) (*KubeadmProvider, error) {
	cache := controlplanesetup.ManagerCacheOptions(Scheme(), uniqueName(kubeadmControlPlane), "", controlPlaneSync)
	return startKubeadmProvider(ctx, cfg, "controlplane", cache, controlplanesetup.ManagerClientOptions(), options, func(mgr ctrl.Manager) error {
		secrets, err := controlplanesetup.CreateSecretCachingClient(mgr)
		if err != nil {
			return err
		}
		workers := controller.Options{MaxConcurrentReconciles: kubeadmConcurrency}
		clusterCache, err := setUpClusterCache(ctx, mgr, clustercache.Options{
			SecretClient: secrets, Cache: controlplanesetup.ClusterCacheCacheOptions(),
			Client: controlplanesetup.ClusterCacheClientOptions(kubeadmControlPlane, workloadQPS, workloadBurst),
		}, workers)
		if err != nil {
			return err
		}
		workers.ReconciliationTimeout = 3 * time.Minute // as the provider sets it: a reconcile connects to each etcd member
		return (&kubeadmcontrolplane.Reconciler{
			Client: mgr.GetClient(), SecretCachingClient: secrets, APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
			EtcdDialTimeout: etcdDialTimeout, EtcdCallTimeout: etcdCallTimeout, RemoteConditionsGracePeriod: conditionsGracePeriod,
		}).SetupWithManager(ctx, mgr, workers)
	})
}

// startKubeadmProvider installs the CRDs in a folder of Cluster API's module, and starts a manager that setUp sets up.
func startKubeadmProvider(ctx context.Context, cfg *rest.Config, folder string, cache cache.Options, c client.Options, options Options, setUp func(ctrl.Manager) error) (*KubeadmProvider, error) {
	if err := installKubeadmKinds(ctx, cfg, folder); err != nil {
		return nil, fmt.Errorf("install the kinds of %s/kubeadm: %w", folder, err)
	}
	limited := rest.CopyConfig(cfg)
	limited.QPS, limited.Burst = kubeadmQPS, kubeadmBurst
	mgr, err := ctrl.NewManager(limited, ctrl.Options{
		Scheme:                  Scheme(),
		Logger:                  options.Log,
		Controller:              config.Controller{UsePriorityQueue: ptr.To(true), SkipNameValidation: ptr.To(true), CacheSyncTimeout: manager.CacheSyncTimeout},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(manager.GracefulShutdownTimeout),
		Cache:                   cache,
		Client:                  c,
	})
	if err != nil {
		return nil, err
	}
	if err := setUp(mgr); err != nil {
		return nil, err
	}
	running, err := manager.Start(ctx, mgr)
	if err != nil {
		return nil, fmt.Errorf("start %s/kubeadm: %w", folder, err)
	}
	return &KubeadmProvider{running: running}, nil
}

// installKubeadmKinds installs the CRDs with the label of Cluster API's contract, as in the provider's release.
func installKubeadmKinds(ctx context.Context, cfg *rest.Config, folder string) error {
	dir, err := clusterAPIDir(ctx)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, folder, "kubeadm", "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	var kinds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		kind := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, kind); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		kind.Labels = map[string]string{clusterv1.GroupVersion.Group + "/" + kubeadmv1.GroupVersion.Version: kubeadmv1.GroupVersion.Version}
		kinds = append(kinds, kind)
	}
	_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: kinds, MaxTime: time.Minute})
	return err
}

// CreateClusterCA creates the Secret with a Cluster's certificate authority, which the kubeadm bootstrap provider gives
// to hosts.
func CreateClusterCA(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, workload *controlplane.ControlPlane) error {
	pair, err := workload.Authority()
	if err != nil {
		return err
	}
	ca := &secret.Certificate{Purpose: secret.ClusterCA, KeyPair: &certs.KeyPair{Cert: pair.Cert, Key: pair.Key}}
	return c.Create(ctx, ca.AsSecret(client.ObjectKeyFromObject(cluster), metav1.OwnerReference{}))
}
