// Package workload gives controllers access to workload clusters through Cluster API's cluster cache: clients, watches
// that trigger reconciles of PoolbootConfigs and Clusters, and the information that a host needs to join. It makes no
// decisions about Machines or Nodes, and must not import a reconciler.
package workload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
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

// Identity returns the names and addresses of a cluster: those in the Cluster and, if the manager has a connection, the
// address of the API server and the server name that the kubeconfig expects in its certificate.
func Identity(ctx context.Context, clusters clustercache.ClusterCache, cluster *clusterv1.Cluster) access.Cluster {
	var servers []string
	if connection, err := clusters.GetRESTConfig(ctx, client.ObjectKeyFromObject(cluster)); err == nil && connection != nil {
		servers = append(servers, connection.Host)
		if name := connection.ServerName; name != "" {
			servers = append(servers, "https://"+name)
		}
	}
	return access.ClusterOf(cluster, servers...)
}

// checkBundle returns an error if a certificate of a PEM bundle can't be read. Connections skip such certificates, and
// exist only if there is another one.
func checkBundle(bundle []byte) error {
	for number := 1; ; number++ {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return nil
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil && block.Type == "CERTIFICATE" {
			return fmt.Errorf("PEM block %d is malformed: %w", number, err)
		}
	}
}

// JoinCluster returns the information that a host needs to join its cluster: the address in the Cluster's
// spec.controlPlaneEndpoint, which hosts can reach, and the certificate authority from the manager's kubeconfig. A
// certificate authority in a file is not read. If there is no connection, the error satisfies IsUnreachable.
func JoinCluster(ctx context.Context, clusters clustercache.ClusterCache, cluster *clusterv1.Cluster) (join.Cluster, error) {
	key := client.ObjectKeyFromObject(cluster)
	endpoint := cluster.Spec.ControlPlaneEndpoint
	if !endpoint.IsValid() {
		return join.Cluster{}, fmt.Errorf("cluster %s: spec.controlPlaneEndpoint is not set: wait until the infrastructure provider sets it, or set it", key)
	}
	connection, err := clusters.GetRESTConfig(ctx, key)
	if err != nil {
		return join.Cluster{}, fmt.Errorf("cluster %s: %w", key, err)
	}
	if len(connection.CAData) == 0 {
		return join.Cluster{}, fmt.Errorf("cluster %s: the Secret %s-kubeconfig has no certificate-authority-data: hosts cannot verify the API server without it: add it to the kubeconfig", key, key.Name)
	}
	if err := checkBundle(connection.CAData); err != nil {
		return join.Cluster{}, fmt.Errorf("cluster %s: certificate-authority-data in the Secret %s-kubeconfig: %w: kubelets and the config server accept only a bundle that they can read completely: correct it", key, key.Name, err)
	}
	return join.Cluster{
		Server: "https://" + net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
		CA:     connection.CAData,
		Name:   cluster.Name,
	}, nil
}

// TooLargeError is the error of a response that is larger than its reader allows.
type TooLargeError struct{ limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the response has more than %d bytes", e.limit)
}

// ReaderAs returns a client that always reads from the API server of a workload cluster as another user, whom the
// manager impersonates. So it can read only what this user can read, which is usually less than the manager. A response
// with more than limit bytes is a TooLargeError. If there is no connection, the error satisfies IsUnreachable.
func ReaderAs(ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey, user string, limit int64) (client.Reader, error) {
	original, err := Client(ctx, clusters, cluster)
	if err != nil {
		return nil, err
	}
	connection, err := clusters.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	config := rest.CopyConfig(connection)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next, limit} })
	return newSanitizingClient(cluster, config, original, nil)
}

// limitedTransport limits the size of responses.
type limitedTransport struct {
	http.RoundTripper
	limit int64
}

// RoundTrip sends a request.
func (t limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = &limitedBody{ReadCloser: response.Body, remaining: t.limit, limit: t.limit}
	}
	return response, err
}

// limitedBody is the body of a response, of which at most limit bytes can be read.
type limitedBody struct {
	io.ReadCloser
	remaining, limit int64
}

// Read fails as soon as the body is longer than the limit.
func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.remaining+1 {
		p = p[:b.remaining+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		return 0, &TooLargeError{b.limit}
	}
	return n, err
}

// isTooLarge reports whether a response was larger than its reader allows.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*TooLargeError](err)
	return ok
}
