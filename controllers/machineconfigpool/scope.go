package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// scope is all that the reconciliation of one pool knows.
type scope struct {
	// pool is the pool that is reconciled.
	pool *poolv1.MachineConfigPool
	// cluster is the pool's Cluster; nil when it does not exist.
	cluster *clusterv1.Cluster
	// pools are the Cluster's pools, of each role the eldest.
	pools []poolv1.MachineConfigPool
	// configs are the namespace's MachineConfigs.
	configs []poolv1.MachineConfig
	// machines are the PoolbootConfigs that are recorded in the pool.
	machines []bootstrapv1.PoolbootConfig
	// unrecorded is true while it is not on record what some Machine that has joined, and may be the pool's, runs: just after
	// clusterctl move.
	unrecorded bool

	// memory is what is known of the pool from its last reconcile.
	memory *memory
	// rendered is what the pool renders; nil when there is a problem.
	rendered *pool.Rendered
	// problem is why the pool can't be rendered; nil when it can.
	problem *problem
}

// problem is what a person has to put right.
type problem struct{ reason, message string }

// gather reads everything that the decisions about a pool rest on.
func (r *Reconciler) gather(ctx context.Context, p *poolv1.MachineConfigPool) (*scope, error) {
	s := &scope{pool: p, memory: r.remember(client.ObjectKeyFromObject(p))}
	var err error
	if s.cluster, err = r.clusterOf(ctx, p); err != nil || s.cluster == nil {
		return s, err
	}
	namespace := client.InNamespace(p.Namespace)
	pools := &poolv1.MachineConfigPoolList{}
	if err := r.Client.List(ctx, pools, namespace); err != nil {
		return nil, fmt.Errorf("MachineConfigPools of namespace %s: %w", p.Namespace, err)
	}
	s.pools = eldest(pools.Items, p.Spec.ClusterName)

	configs := &poolv1.MachineConfigList{}
	if err := r.Client.List(ctx, configs, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("MachineConfigs of namespace %s: %w", p.Namespace, err)
	}
	s.configs = configs.Items

	machines := &bootstrapv1.PoolbootConfigList{}
	ofCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}
	if err := r.Client.List(ctx, machines, namespace, ofCluster, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("PoolbootConfigs of Cluster %s: %w", client.ObjectKeyFromObject(s.cluster), err)
	}
	s.unrecorded = slices.ContainsFunc(machines.Items, func(c bootstrapv1.PoolbootConfig) bool {
		return hasJoined(&c) && c.Status.Configuration == "" && (c.Status.Pool == "" || c.Status.Pool == p.Spec.Role)
	})
	s.machines = slices.DeleteFunc(machines.Items, func(c bootstrapv1.PoolbootConfig) bool { return c.Status.Pool != p.Spec.Role })
	return s, nil
}

// eldest returns a Cluster's pools without those whose role an older pool has already; of two pools of one age the first by
// name counts as the older.
func eldest(pools []poolv1.MachineConfigPool, clusterName string) []poolv1.MachineConfigPool {
	slices.SortFunc(pools, func(a, b poolv1.MachineConfigPool) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	roles := map[string]bool{}
	return slices.DeleteFunc(pools, func(p poolv1.MachineConfigPool) bool {
		if p.Spec.ClusterName != clusterName || roles[p.Spec.Role] {
			return true
		}
		roles[p.Spec.Role] = true
		return false
	})
}

// render sets what the pool renders, or the problem that keeps it from being rendered.
func (s *scope) render() {
	if s.cluster == nil {
		s.problem = &problem{poolv1.ClusterNotFoundReason, fmt.Sprintf(
			"Cluster %s/%s does not exist: make it, or make the pool anew with the clusterName of one that does", s.pool.Namespace, s.pool.Spec.ClusterName)}
		return
	}
	if i := slices.IndexFunc(s.pools, func(p poolv1.MachineConfigPool) bool { return p.Spec.Role == s.pool.Spec.Role }); i >= 0 && s.pools[i].UID != s.pool.UID {
		s.machines = nil // they are the other's
		s.problem = &problem{poolv1.DuplicateRoleReason, fmt.Sprintf(
			"role %s of Cluster %s is that of the older MachineConfigPool %s: delete one of the two", s.pool.Spec.Role, s.cluster.Name, s.pools[i].Name)}
		return
	}
	var err error
	var notFound *pool.NotFoundError
	switch s.rendered, err = s.memory.render(s); {
	case errors.As(err, &notFound):
		s.problem = &problem{poolv1.WorkerPoolMissingReason, fmt.Sprintf(
			"Cluster %s has no MachineConfigPool with role %s, from which this one inherits: make it", s.cluster.Name, poolv1.RoleWorker)}
	case err != nil:
		s.problem = &problem{poolv1.RenderFailedReason, err.Error() + "; correct that, and the pool is rendered anew"}
	}
}
