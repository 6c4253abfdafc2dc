package hostpool

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clockSkew is the maximum difference between the clocks of two API servers.
const clockSkew = time.Minute

// PredatesCluster reports whether a PoolbootConfig was created for an earlier Cluster with the same name. A
// PoolbootConfig is younger than its Cluster, even after clusterctl move, which creates a Cluster before the objects
// that it owns.
func PredatesCluster(config client.Object, cluster *clusterv1.Cluster) bool {
	return config.GetCreationTimestamp().Add(clockSkew).Before(cluster.CreationTimestamp.Time)
}
