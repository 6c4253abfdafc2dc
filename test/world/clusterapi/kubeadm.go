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
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
)

// kubeadmProvider is the kubeadm bootstrap provider's name in user agents.
const kubeadmProvider = "cluster-api-kubeadm-bootstrap"

// Defaults of the kubeadm bootstrap provider's flags.
const (
	kubeadmConcurrency = 100
	kubeadmQPS         = 100
	kubeadmBurst       = 200
)

// KubeadmBootstrap is a running kubeadm bootstrap provider of Cluster API (CABPK).
type KubeadmBootstrap struct {
	running *manager.Running
}

// StartKubeadmBootstrap installs the CRDs of Cluster API's kubeadm bootstrap provider and starts its real reconciler in
// this process, with its default limits and without its webhooks, which only validate and set defaults.
func StartKubeadmBootstrap(ctx context.Context, cfg *rest.Config, options Options) (*KubeadmBootstrap, error) {
	if err := installKubeadmKinds(ctx, cfg); err != nil {
		return nil, fmt.Errorf("install the kinds of the kubeadm bootstrap provider: %w", err)
	}
	scheme := Scheme()
	limited := rest.CopyConfig(cfg)
	limited.QPS, limited.Burst = kubeadmQPS, kubeadmBurst
	mgr, err := ctrl.NewManager(limited, ctrl.Options{
		Scheme:                  scheme,
		Logger:                  options.Log,
		Controller:              config.Controller{UsePriorityQueue: ptr.To(true), SkipNameValidation: ptr.To(true), CacheSyncTimeout: manager.CacheSyncTimeout},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(manager.GracefulShutdownTimeout),
		Cache:                   setup.ManagerCacheOptions(scheme, uniqueName(kubeadmProvider), "", 10*time.Minute),
		Client:                  setup.ManagerClientOptions(),
	})
	if err != nil {
		return nil, err
	}
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, err
	}
	workers := controller.Options{MaxConcurrentReconciles: kubeadmConcurrency}
	clusterCache, err := setUpClusterCache(ctx, mgr, kubeadmProvider, workers)
	if err != nil {
		return nil, err
	}
	if err := (&kubeadmconfig.Reconciler{
		Client: mgr.GetClient(), SecretCachingClient: secrets, APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache,
		TokenTTL: kubeadmconfig.DefaultTokenTTL,
	}).SetupWithManager(ctx, mgr, workers); err != nil {
		return nil, err
	}
	running, err := manager.Start(ctx, mgr)
	if err != nil {
		return nil, fmt.Errorf("start the kubeadm bootstrap provider: %w", err)
	}
	return &KubeadmBootstrap{running: running}, nil
}

// Stop stops the provider and waits for it.
func (k *KubeadmBootstrap) Stop() error { return k.running.Stop() }

// installKubeadmKinds installs the CRDs with the label of Cluster API's contract, as in the provider's release.
func installKubeadmKinds(ctx context.Context, cfg *rest.Config) error {
	dir, err := clusterAPIDir(ctx)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "bootstrap", "kubeadm", "config", "crd", "bases", "*.yaml"))
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
