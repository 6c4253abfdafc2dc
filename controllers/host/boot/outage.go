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

// retryInterval is how soon an unreachable workload cluster is tried again. The cluster cache reports new connections.
// It does not report that a cluster answers again if it never saw the connection break.
const retryInterval = 5 * time.Second

// trialPatience is how long all other boots wait while one boot tries a cluster again. It is longer than the timeout of
// the cluster cache's clients.
const trialPatience = 15 * time.Second

// outages remembers the clusters whose API servers do not answer, so their hosts do not occupy all workers: until a
// call succeeds, one boot at a time tries. The zero value is ready to use.
type outages struct {
	mu   sync.Mutex
	down map[client.ObjectKey]outage
}

type outage struct {
	until time.Time
	err   error
}

// check returns why a cluster is not to be called now, or nil if the caller is to try it.
func (o *outages) check(cluster client.ObjectKey) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	outage, down := o.down[cluster]
	if down && time.Now().Before(outage.until) {
		return outage.err
	}
	if down {
		outage.until = time.Now().Add(trialPatience)
		o.down[cluster] = outage
	}
	return nil
}

// add records that a cluster does not answer.
func (o *outages) add(cluster client.ObjectKey, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down == nil {
		o.down = map[client.ObjectKey]outage{}
	}
	o.down[cluster] = outage{until: time.Now().Add(retryInterval), err: err}
}

// clear records that a cluster has answered.
func (o *outages) clear(cluster client.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.down, cluster)
}

// remote wraps a phase that calls the workload cluster. If the cluster is unreachable, the boot waits, because this is
// not an error of the boot.
func (r *Phases) remote(call phase) phase {
	return func(ctx context.Context, s *state) error {
		err := call(ctx, s)
		switch {
		case err == nil:
			return nil
		case workload.IsUnreachable(err):
			if !errors.Is(err, clustercache.ErrClusterNotConnected) {
				r.outages.add(s.workloadKey(), err)
			}
			return unreachable(err)
		case is[*failure](err): // the API server has answered
			r.outages.clear(s.workloadKey())
			return err
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			r.outages.clear(s.workloadKey())
			return fault(bootstrapv1.BootFailedReason, "%w: give the user of the kubeconfig in Secret %s/%s the rights of an administrator", err,
				s.Cluster.Namespace, secret.Name(s.Cluster.Name, secret.Kubeconfig))
		}
		return err
	}
}

// unreachable returns the failure of a boot whose workload cluster does not answer.
func unreachable(err error) error {
	return &failure{reason: workload.UnreachableReason(err), waits: true, retry: retryInterval,
		err: fmt.Errorf("the API server of the workload cluster can't be reached: %w", err)}
}
