package workload

import (
	"context"
	"errors"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// Confine returns a cluster cache whose clients may lead to an API server that a tenant chose: they follow no redirect,
// and their errors, which end in conditions and events, repeat nothing that did not come as a Kubernetes Status.
// Without a connection the error says what is wrong with the kubeconfig, if that is why; secrets reads it.
//
// The cluster cache's own connection test, discovery and informers stay as they are. They only read, and what goes
// wrong with them is only logged.
func Confine(clusters clustercache.ClusterCache, secrets client.Reader) clustercache.ClusterCache {
	return &confined{ClusterCache: clusters, diagnosis: diagnosis{secrets: secrets}, connections: map[client.ObjectKey]connection{}}
}

type confined struct {
	clustercache.ClusterCache
	diagnosis diagnosis

	mu          sync.Mutex
	connections map[client.ObjectKey]connection
}

// connection holds the clients of one connection of the cluster cache, which its config identifies.
type connection struct {
	config       *rest.Config
	cached, live client.Client
}

func (c *confined) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	connected, err := c.connection(ctx, cluster)
	return connected.cached, err
}

func (c *confined) GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	return c.GetClient(ctx, cluster)
}

func (c *confined) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	connected, err := c.connection(ctx, cluster)
	return connected.live, err
}

func (c *confined) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	config, err := c.ClusterCache.GetRESTConfig(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, notConnected{c.diagnosis.why(ctx, cluster)}
	}
	return config, err
}

func (c *confined) connection(ctx context.Context, cluster client.ObjectKey) (connection, error) {
	config, err := c.GetRESTConfig(ctx, cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.connections, cluster)
		return connection{}, err
	}
	if known, is := c.connections[cluster]; is && known.config == config {
		return known, nil
	}
	theirs, err := c.ClusterCache.GetClient(ctx, cluster)
	if err != nil {
		return connection{}, err
	}
	made := connection{config: config}
	if made.live, err = confinedClient(cluster, config, theirs, nil); err != nil {
		return connection{}, err
	}
	// What the cluster cache's client reads from its cache, it goes on reading there.
	made.cached, err = confinedClient(cluster, config, theirs, &client.CacheOptions{Reader: theirs, DisableFor: uncached, Unstructured: true})
	if err != nil {
		return connection{}, err
	}
	maps.DeleteFunc(c.connections, func(other client.ObjectKey, _ connection) bool { // a client keeps the cache that it reads from
		_, err := c.ClusterCache.GetRESTConfig(ctx, other)
		return err != nil
	})
	c.connections[cluster] = made
	return made, nil
}

// confinedClient makes a client of a connection, without a call to its server.
func confinedClient(cluster client.ObjectKey, config *rest.Config, theirs client.Client, cache *client.CacheOptions) (client.Client, error) {
	httpClient, err := kubeconfig.HTTPClient(config)
	if err != nil {
		return nil, err
	}
	made, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: theirs.Scheme(), Mapper: theirs.RESTMapper(), Cache: cache})
	return &discreet{Client: made, cluster: cluster}, err
}

// discreet is a client whose errors tell nothing of what an address answers that is no API server.
type discreet struct {
	client.Client
	cluster client.ObjectKey
}

// tell returns the error that others may be told. A Kubernetes Status is what a tenant can ask the API server for
// directly; what a client finds out by itself tells nothing of the server.
func (d *discreet) tell(ctx context.Context, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil,
		errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse),
		meta.IsNoMatchError(err), runtime.IsNotRegisteredError(err),
		errors.Is(err, context.Canceled):
		return err
	}
	ctrl.LoggerFrom(ctx).V(2).Info("No answer of a workload cluster's API server", "Cluster", d.cluster, "err", err.Error())
	return &UnansweredError{Cluster: d.cluster}
}

func (d *discreet) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return d.tell(ctx, d.Client.Get(ctx, key, object, options...))
}

func (d *discreet) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return d.tell(ctx, d.Client.List(ctx, list, options...))
}

func (d *discreet) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return d.tell(ctx, d.Client.Create(ctx, object, options...))
}

func (d *discreet) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return d.tell(ctx, d.Client.Delete(ctx, object, options...))
}

func (d *discreet) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return d.tell(ctx, d.Client.Update(ctx, object, options...))
}

func (d *discreet) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return d.tell(ctx, d.Client.Patch(ctx, object, patch, options...))
}

func (d *discreet) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return d.tell(ctx, d.Client.Apply(ctx, object, options...))
}

func (d *discreet) DeleteAllOf(ctx context.Context, object client.Object, options ...client.DeleteAllOfOption) error {
	return d.tell(ctx, d.Client.DeleteAllOf(ctx, object, options...))
}

func (d *discreet) Status() client.SubResourceWriter { return d.SubResource("status") }

func (d *discreet) SubResource(name string) client.SubResourceClient {
	return &discreetSubResource{SubResourceClient: d.Client.SubResource(name), of: d}
}

// discreetSubResource is a discreet client of a subresource.
type discreetSubResource struct {
	client.SubResourceClient
	of *discreet
}

func (d *discreetSubResource) Get(ctx context.Context, object, sub client.Object, options ...client.SubResourceGetOption) error {
	return d.of.tell(ctx, d.SubResourceClient.Get(ctx, object, sub, options...))
}

func (d *discreetSubResource) Create(ctx context.Context, object, sub client.Object, options ...client.SubResourceCreateOption) error {
	return d.of.tell(ctx, d.SubResourceClient.Create(ctx, object, sub, options...))
}

func (d *discreetSubResource) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return d.of.tell(ctx, d.SubResourceClient.Update(ctx, object, options...))
}

func (d *discreetSubResource) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	return d.of.tell(ctx, d.SubResourceClient.Apply(ctx, object, options...))
}

func (d *discreetSubResource) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return d.of.tell(ctx, d.SubResourceClient.Patch(ctx, object, patch, options...))
}
