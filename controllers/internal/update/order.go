package update

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// closedByOrder returns why hosts of a pool begin no update before other pools of the Cluster are ready, or nil. It
// makes no request: caches have everything.
func (r *Updates) closedByOrder(ctx context.Context, s *poolScope) (*rollout.ClosedGate, error) {
	earlier := rollout.EarlierPools(s.pool, s.pools)
	if len(earlier) == 0 {
		return nil, nil
	}
	configs := &poolv1.MachineConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(s.pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("MachineConfigs of namespace %s: %w", s.pool.Namespace, err)
	}
	for _, e := range earlier {
		closed := e.ClosedUntilReady(s.pools, configs.Items, r.now())
		if closed == nil {
			var err error
			if closed, err = r.closedByHost(ctx, s, e); err != nil {
				return nil, err
			}
		}
		if closed != nil {
			return closed, nil
		}
	}
	return nil, nil
}

// closedByHost returns that a host of an earlier pool does not run its target, or nil. The status of the pool says so
// only after its hosts were looked at: a new version of the agent, for example, changes all targets at once.
func (r *Updates) closedByHost(ctx context.Context, s *poolScope, e rollout.EarlierPool) (*rollout.ClosedGate, error) {
	p, err := pool.OfRole(s.pools, e.Role)
	if err != nil {
		return nil, err
	}
	in := r.poolContextOf(ctx, s.cluster, p, s.pools)
	for _, of := range s.all.hostsOf(e.Role, s.pools) {
		h := &host{Host: of}
		if h.IsExcluded() || !h.HasBegun() && h.hold(in).IsSkipped {
			continue
		}
		revision, err := r.revisionOf(ctx, h, in)
		if workload.IsUnreachable(err) {
			return nil, err
		}
		if err != nil || !h.Report.IsDone(revision) {
			return e.ClosedUntilUpdated(h.Name()), nil //nolint:nilerr // The condition Updated of that host has the error.
		}
	}
	return nil, nil
}
