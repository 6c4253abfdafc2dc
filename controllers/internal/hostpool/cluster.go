package hostpool

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clockSkew is the maximum difference between the clocks of two API servers.
const clockSkew = time.Minute

// LiveCluster reads a Cluster from the API server, and returns nil if it does not exist. A PoolbootConfig can be in the
// cache before its Cluster: clusterctl move creates both within moments.
func LiveCluster(ctx context.Context, live client.Reader, key client.ObjectKey) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	if err := live.Get(ctx, key, cluster); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return cluster, nil
}

// PredatesCluster reports whether a PoolbootConfig was created for an earlier Cluster with the same name. A
// PoolbootConfig is younger than its Cluster, even after clusterctl move, which creates a Cluster before the objects
// that it owns.
func PredatesCluster(config client.Object, cluster *clusterv1.Cluster) bool {
	return config.GetCreationTimestamp().Add(clockSkew).Before(cluster.CreationTimestamp.Time)
}
