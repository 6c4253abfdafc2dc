package controllertest

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
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

// GetClient returns the client that reads from the cache, and Nodes without the fields that the cache does not have.
func (c *ClusterCache) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	w, err := c.ClusterCache.GetClient(ctx, cluster)
	if w, err = c.choose(w, c.Cached, err); err != nil {
		return nil, err
	}
	return cachedClient{w.(client.WithWatch)}, nil
}

// cachedClient reads Nodes as the cache of a workload cluster has them.
type cachedClient struct{ client.WithWatch }

// Get implements client.Reader.
func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.WithWatch.Get(ctx, key, object, options...)
	if node, isNode := object.(*corev1.Node); isNode && err == nil {
		_, err = transformNode()(node)
	}
	return err
}

// List implements client.Reader.
func (c cachedClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.WithWatch.List(ctx, list, options...)
	if nodes, areNodes := list.(*corev1.NodeList); areNodes && err == nil {
		for i := range nodes.Items {
			_, failed := transformNode()(&nodes.Items[i])
			err = errors.Join(err, failed)
		}
	}
	return err
}

// transformNode returns the function that drops the fields of a Node that the cache does not have.
var transformNode = sync.OnceValue(func() (transform toolscache.TransformFunc) {
	for kind, options := range workload.CacheOptions().ByObject {
		if _, isNode := kind.(*corev1.Node); isNode {
			transform = options.Transform
		}
	}
	return transform
})

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
