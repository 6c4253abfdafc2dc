package install_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterclass"
	topologycluster "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
)

// startTopology starts Cluster API's reconcilers for ClusterClass.
func startTopology(ctx context.Context) {
	GinkgoHelper()
	const name = "cluster-topology"
	options := controller.Options{MaxConcurrentReconciles: 1}
	scheme := clusterapi.Scheme()
	Expect(runtimev1.AddToScheme(scheme)).To(Succeed())
	mgr, err := ctrl.NewManager(controlPlane.Config, ctrl.Options{
		Scheme:     scheme,
		Controller: config.Controller{UsePriorityQueue: ptr.To(true), SkipNameValidation: ptr.To(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      setup.ManagerCacheOptions(scheme, name, "", 10*time.Minute),
		Client:     setup.ManagerClientOptions(),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(index.AddDefaultIndexes(ctx, mgr)).To(Succeed())
	secrets, err := setup.CreateSecretCachingClient(mgr)
	Expect(err).NotTo(HaveOccurred())
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(name, 20, 30),
	}, options)
	Expect(err).NotTo(HaveOccurred())
	Expect((&clusterclass.Reconciler{Client: mgr.GetClient()}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	Expect((&topologycluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters,
	}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	running, err := manager.Start(ctx, mgr)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
}
