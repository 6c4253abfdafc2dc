package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

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
