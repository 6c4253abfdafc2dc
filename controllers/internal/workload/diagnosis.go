package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// lookInterval is how long what a look at a Secret found is good: all hosts of a cluster may ask at once.
const lookInterval = 10 * time.Second

// diagnosis says why there is no connection to a workload cluster: the cluster cache only logs it. It connects to
// nothing itself.
type diagnosis struct {
	// secrets reads the Secrets with the clusters' kubeconfigs.
	secrets client.Reader

	mu    sync.Mutex
	looks map[client.ObjectKey]look
}

// look is what was found when a Secret was last looked at.
type look struct {
	began time.Time
	why   error
}

// why returns why there is no connection to an API server, with the cure: what is wrong with the kubeconfig, or else an
// UnansweredError. However many ask, the Secret is read once in lookInterval, and those who ask meanwhile get what the
// look before has found.
func (d *diagnosis) why(ctx context.Context, cluster client.ObjectKey) error {
	d.mu.Lock()
	known, is := d.looks[cluster]
	if is && time.Since(known.began) < lookInterval {
		d.mu.Unlock()
		return known.why
	}
	if d.looks == nil {
		d.looks = map[client.ObjectKey]look{}
	}
	unanswered := &UnansweredError{Cluster: cluster}
	if known.began = time.Now(); known.why == nil {
		known.why = unanswered
	}
	d.looks[cluster] = known
	d.mu.Unlock()

	if _, known.why = kubeconfig.OfCluster(ctx, d.secrets, cluster); known.why == nil {
		known.why = unanswered
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looks[cluster] = known
	return known.why
}

// notConnected is why there is no connection: it satisfies IsUnreachable, and errors.Is of ErrClusterNotConnected, as
// what the cluster cache itself returns does.
type notConnected struct{ error }

func (n notConnected) Unwrap() []error { return []error{n.error, clustercache.ErrClusterNotConnected} }

// UnreachableReason returns the reason of a condition that tells of an error which satisfies IsUnreachable.
func UnreachableReason(err error) string {
	if _, is := errors.AsType[*kubeconfig.SecretError](err); is {
		return bootstrapv1.KubeconfigInvalidReason
	}
	return bootstrapv1.WorkloadClusterUnreachableReason
}

// UnansweredError says that no API server answers to a Cluster's kubeconfig. Its text is the same whatever happened,
// and it wraps nothing that code could decide by. A tenant chooses the address, so what told a refused connection from
// a timeout, or one answer from another, would let a tenant scan the networks that the manager reaches.
type UnansweredError struct {
	// Cluster is the Cluster whose kubeconfig leads there.
	Cluster client.ObjectKey
}

func (e *UnansweredError) Error() string {
	return fmt.Sprintf("no API server answers to the kubeconfig in Secret %s: check its server, its certificate authority and its user; "+
		"the manager's log has the cause", kubeconfig.SecretOf(e.Cluster))
}
