package certificate

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// facts are the input of a verdict.
type facts struct {
	request *certificatesv1.CertificateSigningRequest
	// config is the PoolbootConfig of the host that created the request.
	config *bootstrapv1.PoolbootConfig
	// node is the Node that the config records, nil if it does not exist.
	node *corev1.Node
	// pools are the pools of the Cluster.
	pools []poolv1.MachineConfigPool
	// now is the time at which the facts were read.
	now time.Time
	// cluster has the names and addresses of the Node's cluster.
	cluster access.Cluster
	// addresses has the known addresses of the host, for serving certificates only.
	addresses addresses
}

// gatherServing reads the additional facts for a serving certificate.
func (r *Reconciler) gatherServing(ctx context.Context, live client.Client, cluster client.ObjectKey, f *facts) (err error) {
	if !record.HasNode(f.config) {
		return nil
	}
	cached, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	if f.cluster.ServiceAddresses, err = serviceAddresses(ctx, live); err != nil {
		return err
	}
	f.addresses, err = r.gatherAddresses(ctx, cached, f.config)
	return err
}

// gather reads the facts for a verdict. It returns false if the request is no longer from the host of the
// PoolbootConfig. It reads the Node once for all attempts.
func (r *Reconciler) gather(ctx context.Context, configs, nodes client.Reader, live client.Client, cluster, key client.ObjectKey, f *facts) (ok bool, err error) {
	f.config, f.now = &bootstrapv1.PoolbootConfig{}, time.Now()
	if err := configs.Get(ctx, key, f.config); err != nil {
		return false, err
	}
	if !canRequest(f.config) || !belongsTo(f.request, f.config) {
		return false, nil
	}
	if recorded := f.config.Status.NodeRef; recorded.IsDefined() && (f.node == nil || f.node.Name != recorded.Name) {
		if f.node, err = workload.GetIfExists[corev1.Node](ctx, nodes, client.ObjectKey{Name: recorded.Name}); err != nil {
			return false, err
		}
	}
	clusterObject := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, cluster, clusterObject); err != nil {
		return false, err
	}
	f.cluster = workload.Identity(ctx, r.ClusterCache, clusterObject)
	if f.request.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		err = r.gatherServing(ctx, live, cluster, f)
	} else {
		f.pools, err = workload.PoolsOfCluster(ctx, r.Client, cluster)
	}
	return true, err
}
