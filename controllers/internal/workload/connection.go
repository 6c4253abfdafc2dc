// Package workload is the way from the controllers into workload clusters, through Cluster API's cluster cache:
// clients, watches that lead back to PoolbootConfigs, and what a host must know of its cluster. It decides nothing
// about Machines or Nodes, and it may not import another controller.
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

// ClientOptions are the options of the cluster cache's clients. Secrets are never cached: an informer on them would
// hold every Secret of every workload cluster. userAgent is the manager's name; qps and burst of 0 mean the cluster
// cache's own defaults.
func ClientOptions(userAgent string, qps float32, burst int) clustercache.ClientOptions {
	return clustercache.ClientOptions{
		UserAgent: remote.DefaultClusterAPIUserAgent(userAgent),
		QPS:       qps,
		Burst:     burst,
		Cache:     clustercache.ClientCacheOptions{DisableFor: uncached},
	}
}

// uncached are the kinds that clients read live.
var uncached = []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}

// RequestorIndex indexes certificate signing requests by who made them.
const RequestorIndex = "spec.username"

// Requestor returns what RequestorIndex finds a certificate signing request by.
func Requestor(object client.Object) []string {
	if request, is := object.(*certificatesv1.CertificateSigningRequest); is {
		return []string{request.Spec.Username}
	}
	return nil
}

// CacheOptions are the options of the cluster cache's caches: Nodes without the lists of images and volumes that nobody
// here reads; of the certificate signing requests, by RequestorIndex, not those of users for client certificates; and
// of policies and rights only Poolboot's own.
func CacheOptions() clustercache.CacheOptions {
	byObject := map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: slimNode},
		&certificatesv1.CertificateSigningRequest{}: {
			Field: fields.OneTermNotEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName),
		},
	}
	own := labels.SelectorFromSet(labels.Set{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot})
	for _, kind := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		byObject[kind] = cache.ByObject{Label: own}
	}
	for _, kind := range []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		byObject[kind] = cache.ByObject{Label: own, Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {}}}
	}
	return clustercache.CacheOptions{
		Indexes: []clustercache.CacheOptionsIndex{
			{Object: &certificatesv1.CertificateSigningRequest{}, Field: RequestorIndex, ExtractValue: Requestor},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         byObject,
	}
}

func slimNode(object any) (any, error) {
	if node, is := object.(*corev1.Node); is {
		node.ManagedFields = nil
		node.Status.Images, node.Status.VolumesAttached, node.Status.VolumesInUse = nil, nil, nil
	}
	return object, nil
}

// Client returns a client of a workload cluster. It reads Nodes and certificate signing requests from the cache and
// everything of ClientOptions' DisableFor live. Its error satisfies IsUnreachable when there is no connection.
func Client(ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	c, err := clusters.GetClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return c, nil
}

// LiveClient returns a client of a workload cluster that reads everything live: for decisions that a stale read would
// spoil. Its error satisfies IsUnreachable when there is no connection.
func LiveClient(ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	c, err := clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return c, nil
}

// IsUnreachable says whether a call into a workload cluster failed because its API server can't be reached or can't
// answer now: no connection in the cluster cache, a network error, a timeout, or a server that is starting or
// overloaded. The cluster cache itself notices a lost connection only after several failed probes.
func IsUnreachable(err error) bool {
	var (
		network    net.Error
		unanswered *UnansweredError
	)
	return errors.Is(err, clustercache.ErrClusterNotConnected) ||
		errors.As(err, &unanswered) ||
		errors.As(err, &network) ||
		errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err)
}
