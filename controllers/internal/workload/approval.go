package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

const (
	// approvedTTL is how long a positive result is cached: that the cluster does not approve requests automatically.
	approvedTTL = time.Minute
	// autoApprovedTTL is how long a negative result is cached. It is short, because an administrator is to correct the
	// cluster.
	autoApprovedTTL = 10 * time.Second
)

// ApprovalChecker checks, before a join credential is created, that the workload cluster does not automatically approve
// the certificate signing requests of the credential. It caches the results, so many hosts that boot at the same time
// cause one API request. The zero value is ready to use.
type ApprovalChecker struct {
	// Clock determines when cached results expire. Nil means the real clock.
	Clock clock.PassiveClock

	inFlight singleflight.Group

	mu      sync.Mutex
	results map[types.UID]approvalResult
}

type approvalResult struct {
	expires time.Time
	err     error
}

// Check returns the result of join.CheckApproval for the Cluster with this UID.
func (a *ApprovalChecker) Check(ctx context.Context, w client.Client, cluster types.UID) error {
	if result, ok := a.cached(cluster); ok {
		return result.err
	}
	_, err, _ := a.inFlight.Do(string(cluster), func() (any, error) {
		if result, ok := a.cached(cluster); ok {
			return nil, result.err
		}
		err := join.CheckApproval(ctx, w)
		result := approvalResult{expires: a.now().Add(approvedTTL), err: err}
		if _, ok := errors.AsType[*join.AutoApprovedError](err); ok {
			result.expires = a.now().Add(autoApprovedTTL)
		} else if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for other, old := range a.results { // drop the results of deleted Clusters
			if a.now().After(old.expires) {
				delete(a.results, other)
			}
		}
		if a.results == nil {
			a.results = map[types.UID]approvalResult{}
		}
		a.results[cluster] = result
		return nil, err
	})
	return err
}

// cached returns the result for a Cluster, if it has not expired.
func (a *ApprovalChecker) cached(cluster types.UID) (approvalResult, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	result, ok := a.results[cluster]
	return result, ok && a.now().Before(result.expires)
}

func (a *ApprovalChecker) now() time.Time {
	if a.Clock == nil {
		return time.Now()
	}
	return a.Clock.Now()
}
