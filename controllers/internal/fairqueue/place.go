package fairqueue

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// OfConfig returns the place of requests for PoolbootConfigs, which are read from a cache. One that is gone waits with
// all such of its namespace.
func OfConfig(configs client.Reader) func(ctrl.Request) Place {
	return func(r ctrl.Request) Place {
		config := &bootstrapv1.PoolbootConfig{}
		if err := configs.Get(context.Background(), r.NamespacedName, config, client.UnsafeDisableDeepCopy); err != nil {
			return Place{Cluster: client.ObjectKey{Namespace: r.Namespace}}
		}
		return Place{Cluster: client.ObjectKey{Namespace: r.Namespace, Name: config.Labels[clusterv1.ClusterNameLabel]}, Pool: config.Status.PoolRole}
	}
}

// OfCluster is the place of requests for Clusters.
func OfCluster(r ctrl.Request) Place { return Place{Cluster: r.NamespacedName} }
