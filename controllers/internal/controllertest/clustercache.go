package controllertest

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterCache is a cluster cache with a connection to one cluster. It records watches and does not start them.
type ClusterCache struct {
	clustercache.ClusterCache
	// Cached reads from the cache, and Live from the API server. Nil means the client of the connection.
	Cached, Live client.Client
	// RESTConfig is that of the connection, or nil for the one of the cluster cache.
	RESTConfig *rest.Config
	// Unreachable is true while there is no connection.
	Unreachable bool
	// Watches are the names of the watches.
	Watches []string
}

// NewClusterCache returns a cluster cache that uses one client for all reads and writes.
func NewClusterCache(workload client.Client, cluster client.ObjectKey) *ClusterCache {
	return &ClusterCache{ClusterCache: clustercache.NewFakeClusterCache(workload, cluster)}
}

// GetClient returns the client that reads from the cache.
func (c *ClusterCache) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	w, err := c.ClusterCache.GetClient(ctx, cluster)
	return c.choose(w, c.Cached, err)
}

// GetUncachedClient returns the client that reads from the API server.
func (c *ClusterCache) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	w, err := c.ClusterCache.GetUncachedClient(ctx, cluster)
	return c.choose(w, c.Live, err)
}

// GetRESTConfig returns the configuration of the connection.
func (c *ClusterCache) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	switch {
	case c.Unreachable:
		return nil, clustercache.ErrClusterNotConnected
	case c.RESTConfig != nil:
		return c.RESTConfig, nil
	}
	return c.ClusterCache.GetRESTConfig(ctx, cluster)
}

// choose returns the other client instead of that of the connection, if it is set.
func (c *ClusterCache) choose(w, other client.Client, err error) (client.Client, error) {
	switch {
	case c.Unreachable:
		return nil, clustercache.ErrClusterNotConnected
	case err == nil && other != nil:
		return other, nil
	}
	return w, err
}

// Watch records the name of a watch.
func (c *ClusterCache) Watch(_ context.Context, _ client.ObjectKey, watcher clustercache.Watcher) error {
	c.Watches = append(c.Watches, watcher.Name())
	return nil
}
