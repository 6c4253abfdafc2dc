package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// Restrict returns a cluster cache whose clients are safe to use when a tenant chooses the address of the API server.
// The clients follow no redirects. Their errors, which become conditions and events, contain no response of the server,
// except a Kubernetes Status. If there is no connection because the kubeconfig is invalid, the error explains what is
// wrong with it; secrets reads the Secret with the kubeconfig.
//
// The connection probe, discovery and informers of the cluster cache do not change: they only read, and their errors
// are only logged.
func Restrict(clusters clustercache.ClusterCache, secrets client.Reader) clustercache.ClusterCache {
	return &restrictedCache{ClusterCache: clusters, diagnosis: diagnosis{secrets: secrets}, connections: map[client.ObjectKey]connection{}}
}

type restrictedCache struct {
	clustercache.ClusterCache
	diagnosis diagnosis

	mu          sync.Mutex
	connections map[client.ObjectKey]connection
}

// connection has the clients of one connection of the cluster cache. The config identifies the connection: the cluster
// cache has another config after a reconnect.
type connection struct {
	config       *rest.Config
	cached, live client.Client
}

func (c *restrictedCache) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	conn, err := c.connection(ctx, cluster)
	return conn.cached, err
}

func (c *restrictedCache) GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	return c.GetClient(ctx, cluster)
}

func (c *restrictedCache) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	conn, err := c.connection(ctx, cluster)
	return conn.live, err
}

func (c *restrictedCache) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	config, err := c.ClusterCache.GetRESTConfig(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, c.diagnosis.explain(ctx, cluster)
	}
	return config, err
}

// connection returns the clients for the current connection to a cluster, and creates them if the connection is new.
func (c *restrictedCache) connection(ctx context.Context, cluster client.ObjectKey) (connection, error) {
	config, err := c.GetRESTConfig(ctx, cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.connections, cluster)
		return connection{}, err
	}
	if conn, ok := c.connections[cluster]; ok && conn.config == config {
		return conn, nil
	}
	original, err := c.ClusterCache.GetClient(ctx, cluster)
	if err != nil {
		return connection{}, err
	}
	conn := connection{config: config}
	if conn.live, err = newSanitizingClient(cluster, config, original, nil); err != nil {
		return connection{}, err
	}
	// Reads from the cache go through the original client, which has the cache.
	conn.cached, err = newSanitizingClient(cluster, config, original, &client.CacheOptions{Reader: original, DisableFor: uncached, Unstructured: true})
	if err != nil {
		return connection{}, err
	}
	// Drop the clients of closed connections: a client keeps its cache in memory.
	maps.DeleteFunc(c.connections, func(other client.ObjectKey, _ connection) bool {
		_, err := c.ClusterCache.GetRESTConfig(ctx, other)
		return err != nil
	})
	c.connections[cluster] = conn
	return conn, nil
}

// newSanitizingClient returns a client for a connection. It sends no request to the API server.
func newSanitizingClient(cluster client.ObjectKey, config *rest.Config, original client.Client, cache *client.CacheOptions) (client.Client, error) {
	httpClient, err := kubeconfig.HTTPClient(config)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: original.Scheme(), Mapper: original.RESTMapper(), Cache: cache, FieldOwner: join.FieldManager})
	return &sanitizingClient{Client: c, cluster: cluster}, err
}

// sanitizingClient is a client whose errors do not reveal the response of a server that is not an API server.
type sanitizingClient struct {
	client.Client
	cluster client.ObjectKey
}

// sanitize returns an error that is safe to publish in conditions and events. These errors are returned unchanged: a
// Kubernetes Status, which a tenant can also request directly from the API server, errors that the client itself finds
// without a request, and the error of a response that is too large. Every other error is logged and replaced by an
// UnansweredError.
func (c *sanitizingClient) sanitize(ctx context.Context, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil,
		errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse),
		meta.IsNoMatchError(err), runtime.IsNotRegisteredError(err), isTooLarge(err),
		errors.Is(err, context.Canceled):
		return err
	}
	ctrl.LoggerFrom(ctx).V(2).Info("The API server of a workload cluster did not answer", "Cluster", c.cluster, "err", err.Error())
	return &UnansweredError{Cluster: c.cluster}
}

func (c *sanitizingClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.sanitize(ctx, c.Client.Get(ctx, key, object, options...))
}

func (c *sanitizingClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.sanitize(ctx, c.Client.List(ctx, list, options...))
}

func (c *sanitizingClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.sanitize(ctx, c.Client.Create(ctx, object, options...))
}

func (c *sanitizingClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.sanitize(ctx, c.Client.Delete(ctx, object, options...))
}

func (c *sanitizingClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.sanitize(ctx, c.Client.Update(ctx, object, options...))
}

func (c *sanitizingClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.sanitize(ctx, c.Client.Patch(ctx, object, patch, options...))
}

func (c *sanitizingClient) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return c.sanitize(ctx, c.Client.Apply(ctx, object, options...))
}

func (c *sanitizingClient) DeleteAllOf(ctx context.Context, object client.Object, options ...client.DeleteAllOfOption) error {
	return c.sanitize(ctx, c.Client.DeleteAllOf(ctx, object, options...))
}

func (c *sanitizingClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *sanitizingClient) SubResource(name string) client.SubResourceClient {
	return &sanitizingSubResource{SubResourceClient: c.Client.SubResource(name), parent: c}
}

// sanitizingSubResource is the client of a subresource with sanitized errors.
type sanitizingSubResource struct {
	client.SubResourceClient
	parent *sanitizingClient
}

func (c *sanitizingSubResource) Get(ctx context.Context, object, sub client.Object, options ...client.SubResourceGetOption) error {
	return c.parent.sanitize(ctx, c.SubResourceClient.Get(ctx, object, sub, options...))
}

func (c *sanitizingSubResource) Create(ctx context.Context, object, sub client.Object, options ...client.SubResourceCreateOption) error {
	return c.parent.sanitize(ctx, c.SubResourceClient.Create(ctx, object, sub, options...))
}

func (c *sanitizingSubResource) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return c.parent.sanitize(ctx, c.SubResourceClient.Update(ctx, object, options...))
}

func (c *sanitizingSubResource) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	return c.parent.sanitize(ctx, c.SubResourceClient.Apply(ctx, object, options...))
}

func (c *sanitizingSubResource) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return c.parent.sanitize(ctx, c.SubResourceClient.Patch(ctx, object, patch, options...))
}

// diagnosisTTL is how long the result of a diagnosis is cached: all hosts of a cluster can cause one at the same time.
const diagnosisTTL = 10 * time.Second

// diagnosis explains why there is no connection to a workload cluster, which the cluster cache only logs. It checks the
// kubeconfig and opens no connection.
type diagnosis struct {
	// secrets reads the Secrets with the kubeconfigs of the clusters.
	secrets client.Reader
	results perCluster[notConnected]
}

// explain returns an error that explains why there is no connection to a cluster and what to do: what is wrong with the
// kubeconfig, or else an UnansweredError. The Secret is read once per diagnosisTTL.
func (d *diagnosis) explain(ctx context.Context, cluster client.ObjectKey) error {
	explained, _ := d.results.get(cluster, func(notConnected) time.Duration { return diagnosisTTL }, func() (notConnected, error) {
		_, err := kubeconfig.OfCluster(ctx, d.secrets, cluster)
		if err == nil {
			err = &UnansweredError{Cluster: cluster}
		}
		return notConnected{err}, nil
	})
	return explained
}

// notConnected is an error that explains why there is no connection. Like the error of the cluster cache, it wraps
// ErrClusterNotConnected, so it satisfies IsUnreachable.
type notConnected struct{ error }

func (n notConnected) Unwrap() []error { return []error{n.error, clustercache.ErrClusterNotConnected} }

// UnreachableReason returns the condition reason for an error that satisfies IsUnreachable.
func UnreachableReason(err error) string {
	if _, ok := errors.AsType[*kubeconfig.SecretError](err); ok {
		return bootstrapv1.KubeconfigInvalidReason
	}
	return bootstrapv1.WorkloadClusterUnreachableReason
}

// UnansweredError reports that no API server answers at the address in a Cluster's kubeconfig. Its message is always
// the same, and it wraps no other error. A tenant chooses the address: if the error distinguished a refused connection
// from a timeout, or one response from another, the tenant could scan the networks that the manager can reach.
type UnansweredError struct {
	// Cluster is the Cluster with the kubeconfig.
	Cluster client.ObjectKey
}

func (e *UnansweredError) Error() string {
	return fmt.Sprintf("no API server answers to the kubeconfig in Secret %s: check its server, its certificate authority and its user; "+
		"the manager's log has the cause", kubeconfig.SecretOf(e.Cluster))
}
