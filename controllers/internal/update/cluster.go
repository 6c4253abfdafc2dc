package update

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// clusterLimit is what the limit for all pools of the Cluster was decided by.
type clusterLimit struct {
	// worker and pools are as they were read in one request. worker is nil without a limit.
	worker *poolv1.MachineConfigPool
	pools  []poolv1.MachineConfigPool
}

// fitCluster returns those of the hosts that are to begin which the limit for all pools of the Cluster allows to do so,
// beside the hosts that are away in any pool. The slots of all pools are read in one request.
func (r *Updates) fitCluster(ctx context.Context, s *poolScope, beginning []*host) (fit []*host, _ error) {
	if rollout.WorkerWithLimit(s.pools) == nil {
		return beginning, nil
	}
	pools, err := workload.PoolsOfCluster(ctx, r.APIReader, workload.ClusterOfPool(s.pool))
	if err != nil {
		return nil, fmt.Errorf("MachineConfigPools of namespace %s: %w", s.pool.Namespace, err)
	}
	i := slices.IndexFunc(pools, func(p poolv1.MachineConfigPool) bool { return p.UID == s.pool.UID && p.Name == s.pool.Name })
	worker := rollout.WorkerWithLimit(pools)
	if i < 0 || worker == nil || pools[i].ResourceVersion != s.pool.ResourceVersion {
		return nil, apierrors.NewConflict(poolv1.GroupVersion.WithResource("machineconfigpools").GroupResource(), s.pool.Name, errors.New("the cache is older"))
	}
	pools[i].Status.Slots = s.slots
	roles := sets.New[string]()
	for i := range s.all.configs {
		if role := s.all.configs[i].Status.PoolRole; role != "" && record.HasJoined(&s.all.configs[i]) {
			roles.Insert(role)
		}
	}
	hostsOf := func(role string) []*rollout.Host { return s.all.hostsOf(role, pools) }
	candidates := make([]rollout.Candidate, len(beginning))
	for i, h := range beginning {
		candidates[i] = s.candidate(h)
	}
	allowed, closed := rollout.CountCluster(&pools[i], pools, hostsOf, roles, r.now()).Fit(candidates)
	s.limit, s.gates.closedByCluster = clusterLimit{worker, pools}, closed
	for _, h := range beginning {
		if allowed.Has(h.Name()) {
			fit = append(fit, h)
		}
	}
	return fit, nil
}

// declare writes which hosts are about to get slots, before these are written, and returns those that can get them. The
// write is locked to the version of the worker pool from which the hosts of the Cluster were counted. So of two pools
// that counted at the same time, one counts again. The worker pool declares nothing: the write of its slots has this
// lock itself.
func (r *Updates) declare(ctx context.Context, s *poolScope, names []string) ([]string, error) {
	worker := s.limit.worker
	if worker == nil || worker.Name == s.pool.Name {
		return names, nil
	}
	before, begun := worker.DeepCopy(), []string(nil)
	intents := slices.DeleteFunc(rollout.LiveIntents(worker.Status.SlotIntents, s.limit.pools, r.now()), func(i poolv1.SlotIntent) bool {
		return i.Pool == s.pool.Name && slices.Contains(names, i.Host)
	})
	now, isBeginning := metav1.NewTime(r.now()), false
	for _, h := range s.named(names) {
		if s.candidate(h).HasBegun {
			begun = append(begun, h.Name())
			continue
		}
		isBeginning = true
		intents = append(intents, poolv1.SlotIntent{Pool: s.pool.Name, PoolVersion: s.pool.ResourceVersion, Host: h.Name(), Time: &now})
	}
	if !isBeginning {
		return names, nil
	}
	worker.Status.SlotIntents = intents
	if err := status.Patch(ctx, r.Client, before, worker); err != nil {
		return begun, err
	}
	return names, nil
}
