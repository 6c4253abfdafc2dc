package workload

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
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
	Clock clock.Clock

	once     sync.Once
	inFlight singleflight.Group
	results  *cache.Expiring // UID of the Cluster → error, nil if it does not approve requests automatically
}

// Check returns the result of join.CheckApproval for the Cluster with this UID.
func (a *ApprovalChecker) Check(ctx context.Context, w client.Client, cluster types.UID) error {
	if ok, err := a.cached(cluster); ok {
		return err
	}
	_, err, _ := a.inFlight.Do(string(cluster), func() (any, error) {
		if ok, err := a.cached(cluster); ok {
			return nil, err
		}
		err := join.CheckApproval(ctx, w)
		if _, ok := errors.AsType[*join.AutoApprovedError](err); ok {
			a.results.Set(cluster, err, autoApprovedTTL)
		} else if err == nil {
			a.results.Set(cluster, nil, approvedTTL)
		}
		return nil, err
	})
	return err
}

// cached reports whether there is a result for a Cluster that has not expired, and returns it.
func (a *ApprovalChecker) cached(cluster types.UID) (bool, error) {
	a.once.Do(func() { a.results = cache.NewExpiringWithClock(cmp.Or[clock.Clock](a.Clock, clock.RealClock{})) })
	result, ok := a.results.Get(cluster)
	err, _ := result.(error)
	return ok, err
}
