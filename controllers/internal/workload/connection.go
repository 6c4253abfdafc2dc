// Package workload gives controllers access to workload clusters through Cluster API's cluster cache: clients, watches
// that trigger reconciles of PoolbootConfigs and Clusters, and the information that a host needs to join. It makes no
// decisions about Machines or Nodes, and must not import a reconciler.
package workload

import (
	"context"
	"errors"
	"fmt"
	"net"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// ClientOptions returns the options for the clients of the cluster cache. Secrets are never cached: an informer would
// hold every Secret of every workload cluster in memory. userAgent is the name of the manager. If qps or burst is 0,
// the default of the cluster cache applies.
func ClientOptions(userAgent string, qps float32, burst int) clustercache.ClientOptions {
	return clustercache.ClientOptions{
		UserAgent: remote.DefaultClusterAPIUserAgent(userAgent),
		QPS:       qps,
		Burst:     burst,
		Cache:     clustercache.ClientCacheOptions{DisableFor: uncached},
	}
}

// uncached are the kinds that clients always read from the API server.
var uncached = []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}

// RequestorIndex is the index of certificate signing requests by the user that created them.
const RequestorIndex = "spec.username"

// Requestor returns the values of RequestorIndex for a certificate signing request.
func Requestor(object client.Object) []string {
	if request, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
		return []string{request.Spec.Username}
	}
	return nil
}

// CacheOptions returns the options for the caches of the cluster cache. They keep the caches small: Nodes without their
// images, certificate signing requests except those of users for client certificates, and of admission policies and
// RBAC objects only those that Poolboot manages.
func CacheOptions() clustercache.CacheOptions {
	byObject := map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: trimNode},
		&certificatesv1.CertificateSigningRequest{}: {
			Field: fields.OneTermNotEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName),
		},
	}
	managed := labels.SelectorFromSet(labels.Set{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot})
	for _, kind := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		byObject[kind] = cache.ByObject{Label: managed}
	}
	for _, kind := range []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		byObject[kind] = cache.ByObject{Label: managed, Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {}}}
	}
	return clustercache.CacheOptions{
		Indexes: []clustercache.CacheOptionsIndex{
			{Object: &certificatesv1.CertificateSigningRequest{}, Field: RequestorIndex, ExtractValue: Requestor},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         byObject,
	}
}

// trimNode drops the fields of a Node that no controller reads.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images, node.Status.VolumesInUse = nil, nil
	}
	return object, nil
}

// Client returns a client for a workload cluster. It reads from the cache, except Secrets and ConfigMaps. If there is
// no connection, the error satisfies IsUnreachable.
func Client(ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	c, err := clusters.GetClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return c, nil
}

// LiveClient returns a client for a workload cluster that always reads from the API server. Use it for decisions for
// which a stale read is not safe. If there is no connection, the error satisfies IsUnreachable.
func LiveClient(ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	c, err := clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return c, nil
}

// IsUnreachable reports whether a request to a workload cluster failed because its API server is unreachable or cannot
// answer now: the cluster cache has no connection, or there was a network error, a timeout, or a server that is
// starting or overloaded. The cluster cache itself detects a lost connection only after several failed probes.
func IsUnreachable(err error) bool {
	var (
		netErr     net.Error
		unanswered *UnansweredError
	)
	return errors.Is(err, clustercache.ErrClusterNotConnected) ||
		errors.As(err, &unanswered) ||
		errors.As(err, &netErr) ||
		errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err)
}
