package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// scope has the objects and results of one reconcile.
type scope struct {
	// pool is the pool that is reconciled.
	pool *poolv1.MachineConfigPool
	// cluster is the Cluster of the pool, nil if it does not exist.
	cluster *clusterv1.Cluster
	// pools are all pools of the Cluster.
	pools []poolv1.MachineConfigPool
	// configs are the MachineConfigs of the namespace.
	configs []poolv1.MachineConfig
	// machines are the PoolbootConfigs whose recorded pool is this pool.
	machines []bootstrapv1.PoolbootConfig
	// unrecorded is true while a Machine that has joined, and can be in the pool, has no recorded configuration:
	// directly after clusterctl move.
	unrecorded bool

	// cache has what the last reconcile of the pool computed.
	cache *renderCache
	// counted is the state of the Machines in the status.
	counted counts
	// hold is why the hosts that wait begin no update, if the status says it.
	hold rollout.Hold
	// notChosen is why the hosts that are updated next are not known, or nil.
	notChosen error
	// again is after which time the status can change without an event, or 0.
	again time.Duration
	// rendered is the rendered config, nil if there is a problem.
	rendered *pool.Rendered
	// pausedConfigurationInvalid is true if what the paused pool is to hand out cannot be handed out.
	pausedConfigurationInvalid bool
	// problem is why the pool cannot be rendered, or cannot hand out what its annotation names. It is nil if it can.
	problem *problem
}

// problem is something that an administrator must correct.
type problem struct{ reason, message string }

// reconcileIn has the pool reconciled after a time at the latest, if that is more than 0.
func (s *scope) reconcileIn(wait time.Duration) {
	if wait > 0 && (s.again == 0 || wait < s.again) {
		s.again = wait
	}
}

// gather reads the objects that the decisions about a pool need.
func (r *Reconciler) gather(ctx context.Context, p *poolv1.MachineConfigPool) (*scope, error) {
	s := &scope{pool: p, cache: r.cacheOf(client.ObjectKeyFromObject(p))}
	var err error
	key := workload.ClusterOfPool(p)
	if s.cluster, err = workload.GetIfExists[clusterv1.Cluster](ctx, r.Client, key); err != nil {
		return nil, fmt.Errorf("pool's Cluster %s: %w", key, err)
	}
	if s.cluster == nil {
		return s, nil
	}
	namespace := client.InNamespace(p.Namespace)
	if s.pools, err = workload.PoolsOfCluster(ctx, r.Client, key); err != nil {
		return nil, fmt.Errorf("MachineConfigPools of namespace %s: %w", p.Namespace, err)
	}

	configs := &poolv1.MachineConfigList{}
	if err := r.Client.List(ctx, configs, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("MachineConfigs of namespace %s: %w", p.Namespace, err)
	}
	s.configs = configs.Items

	machines := &bootstrapv1.PoolbootConfigList{}
	ofCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}
	var reader client.Reader = r.Client
	if p.Spec.IsPaused() && p.Annotations[poolv1.PausedConfigurationAnnotation] == "" { // what it hands out is decided once
		reader = r.APIReader
	}
	if err := reader.List(ctx, machines, namespace, ofCluster, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("PoolbootConfigs of Cluster %s: %w", key, err)
	}
	s.unrecorded = slices.ContainsFunc(machines.Items, func(c bootstrapv1.PoolbootConfig) bool {
		return record.HasJoined(&c) && c.Status.Boot.ServedConfiguration.Name == "" && (c.Status.PoolRole == "" || c.Status.PoolRole == p.Spec.PoolRole)
	})
	s.machines = slices.DeleteFunc(machines.Items, func(c bootstrapv1.PoolbootConfig) bool { return c.Status.PoolRole != p.Spec.PoolRole })
	return s, nil
}

// render sets the rendered config, or the problem that prevents it.
func (s *scope) render() {
	if s.cluster == nil {
		s.problem = &problem{poolv1.ClusterNotFoundReason, fmt.Sprintf(
			"Cluster %s/%s does not exist: create it, or create the pool again with the clusterName of an existing Cluster", s.pool.Namespace, s.pool.Spec.ClusterName)}
		return
	}
	var err error
	var notFound *pool.NotFoundError
	var duplicate *pool.DuplicateError
	switch s.rendered, err = s.cache.render(s); {
	case errors.As(err, &duplicate):
		s.problem = &problem{poolv1.DuplicateRoleReason, fmt.Sprintf("Cluster %s: %s", s.cluster.Name, err)}
	case errors.As(err, &notFound):
		s.problem = &problem{poolv1.WorkerPoolMissingReason, fmt.Sprintf(
			"Cluster %s has no MachineConfigPool with role %s, from which this pool inherits: create it", s.cluster.Name, poolv1.RoleWorker)}
	case err != nil:
		s.problem = &problem{poolv1.RenderFailedReason, err.Error() + "; correct this, and the pool is rendered again"}
	}
}
