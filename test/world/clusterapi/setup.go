package clusterapi

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	controllerName = "cluster-api"

	// connectionGracePeriod is the time without a connection after which a workload cluster counts as lost.
	connectionGracePeriod = 50 * time.Second
	// conditionsGracePeriod is the time without a connection after which Node conditions become Unknown.
	conditionsGracePeriod = 5 * time.Minute
	// connectionRetry is the interval of connection retries to a workload cluster. Cluster API's default is 30 seconds.
	connectionRetry = 2 * time.Second
)

func (o Options) controllers() controller.Options {
	return controller.Options{MaxConcurrentReconciles: cmp.Or(o.Concurrency, 2)}
}

// The limits of requests to a workload cluster, which are the defaults of Cluster API's flags.
const (
	workloadQPS   = 20
	workloadBurst = 30
)

func setUpClusterCache(ctx context.Context, mgr ctrl.Manager, options clustercache.Options, workers controller.Options) (clustercache.ClusterCache, error) {
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, options, workers)
	if err != nil {
		return nil, err
	}
	if hurried, ok := clusterCache.(interface {
		SetConnectionCreationRetryInterval(time.Duration)
	}); ok {
		hurried.SetConnectionCreationRetryInterval(connectionRetry)
	}
	return clusterCache, nil
}

func setUpReconcilers(ctx context.Context, mgr ctrl.Manager, clusterCache clustercache.ClusterCache, options Options) error {
	c, reader, workers := mgr.GetClient(), mgr.GetAPIReader(), options.controllers()
	return errors.Join(
		(&cluster.Reconciler{
			Client: c, APIReader: reader, ClusterCache: clusterCache,
			RemoteConnectionGracePeriod: connectionGracePeriod,
		}).SetupWithManager(ctx, mgr, workers),
		(&machine.Reconciler{
			Client: c, APIReader: reader, ClusterCache: clusterCache,
			RemoteConditionsGracePeriod: conditionsGracePeriod,
			AdditionalSyncMachineLabels: options.SyncedLabels,
		}).SetupWithManager(ctx, mgr, workers),
		(&machineset.Reconciler{
			Client: c, APIReader: reader, ClusterCache: clusterCache,
			PreflightChecks: sets.New[clusterv1.MachineSetPreflightCheck](),
		}).SetupWithManager(ctx, mgr, workers),
		(&machinedeployment.Reconciler{Client: c, APIReader: reader}).SetupWithManager(ctx, mgr, workers),
		(&machinehealthcheck.Reconciler{Client: c, ClusterCache: clusterCache}).SetupWithManager(ctx, mgr, workers),
	)
}

func setUpWebhooks(mgr ctrl.Manager, clusterCache clustercache.ClusterCache) error {
	conversion.SetAPIVersionGetter(func(_ context.Context, kind schema.GroupKind) (string, error) {
		return schema.GroupVersion{Group: kind.Group, Version: clusterv1.GroupVersion.Version}.String(), nil
	})
	return errors.Join(
		(&admission.Cluster{Client: mgr.GetClient(), ClusterCacheReader: clusterCache}).SetupWebhookWithManager(mgr),
		(&admission.ClusterClass{Client: mgr.GetClient()}).SetupWebhookWithManager(mgr),
		(&admission.Machine{}).SetupWebhookWithManager(mgr),
		(&admission.MachineSet{}).SetupWebhookWithManager(mgr),
		(&admission.MachineDeployment{}).SetupWebhookWithManager(mgr),
		(&admission.MachineHealthCheck{}).SetupWebhookWithManager(mgr),
	)
}
