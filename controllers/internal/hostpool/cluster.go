package hostpool

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clockSkew is how far the clocks of two API servers may be apart.
const clockSkew = time.Minute

// LiveCluster returns a Cluster that the cache does not have; nil when it does not exist. A record may be in its cache
// before its Cluster is: clusterctl move creates both within moments.
func LiveCluster(ctx context.Context, live client.Reader, key client.ObjectKey) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	if err := live.Get(ctx, key, cluster); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return cluster, nil
}

// IsOfEarlier says whether a record was made for an earlier Cluster of the same name. A record is younger than its
// Cluster, also after clusterctl move, which creates Clusters before all that it finds by owners.
func PredatesCluster(record client.Object, cluster *clusterv1.Cluster) bool {
	return record.GetCreationTimestamp().Add(clockSkew).Before(cluster.CreationTimestamp.Time)
}
