package boot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// retryInterval is how soon a workload cluster that can't be reached is tried again: the cluster cache tells of a
// connection that is made, but not of one that it never saw broken.
const retryInterval = 5 * time.Second

// trialPatience is how long everybody else waits for one that tries a cluster again: longer than the cluster cache's
// clients wait for an answer.
const trialPatience = 15 * time.Second

// outages remembers the clusters whose API servers don't answer, so that their hosts don't keep all workers waiting:
// until one call succeeds, one boot tries at a time. The zero value is ready to use.
type outages struct {
	mu   sync.Mutex
	down map[client.ObjectKey]outage
}

type outage struct {
	until time.Time
	why   error
}

// known returns why a cluster need not be called now; nil when it is to be tried.
func (o *outages) known(cluster client.ObjectKey) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	is, down := o.down[cluster]
	if !down {
		return nil
	}
	if time.Now().Before(is.until) {
		return is.why
	}
	o.down[cluster] = outage{until: time.Now().Add(trialPatience), why: is.why}
	return nil
}

func (o *outages) note(cluster client.ObjectKey, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down == nil {
		o.down = map[client.ObjectKey]outage{}
	}
	o.down[cluster] = outage{until: time.Now().Add(retryInterval), why: why}
}

func (o *outages) clear(cluster client.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.down, cluster)
}

// knownOutage is why a cluster is not called now.
type knownOutage struct{ error }

func (o knownOutage) Unwrap() error { return o.error }

// remote marks a phase that talks to the workload cluster: when it can't be reached, that is no fault of the boot.
func (r *Reconciler) remote(do phase) phase {
	return func(ctx context.Context, s *scope) error {
		err := do(ctx, s)
		switch {
		case err == nil:
			return nil
		case is[knownOutage](err):
		case errors.Is(err, clustercache.ErrClusterNotConnected):
		case workload.IsUnreachable(err):
			r.outages.note(s.workloadKey(), err)
		case is[*failure](err):
			r.outages.clear(s.workloadKey()) // it has answered
			return err
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			r.outages.clear(s.workloadKey())
			return fault(bootstrapv1.BootFailedReason, "%w: give the user of the kubeconfig in Secret %s/%s the rights of an administrator", err,
				s.cluster.Namespace, secret.Name(s.cluster.Name, secret.Kubeconfig))
		default:
			return err
		}
		return &failure{reason: workload.UnreachableReason(err), waits: true, retry: retryInterval,
			err: fmt.Errorf("the API server of the workload cluster can't be reached: %w", err)}
	}
}
