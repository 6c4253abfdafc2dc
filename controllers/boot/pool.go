package boot

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/node"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/workload"
)

// choosePool finds the pool that the Machine boots into and what that pool hands out.
func (r *Reconciler) choosePool(ctx context.Context, s *scope) error {
	pools, err := workload.PoolsOfCluster(ctx, r.Client, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	for _, p := range pools {
		s.pools = append(s.pools, pool.WithDefaults(p))
	}
	role, err := s.role()
	if err != nil {
		return err
	}
	chosen, err := pool.OfRole(s.pools, role)
	if err != nil {
		return err
	}
	s.pool = *chosen
	switch {
	case s.config.Spec.ConfigSource.Inline != nil && s.config.Status.Configuration != "":
		s.configuration = s.config.Status.Configuration
	case s.pool.Status.Configuration != nil:
		s.configuration = s.pool.Status.Configuration.Name
	default:
		return fault(bootstrapv1.PoolNotRenderedReason, "MachineConfigPool %s/%s has no status.configuration yet: see its conditions",
			s.pool.Namespace, s.pool.Name)
	}
	return nil
}

// role is the recorded pool's once the Node stands, and with an inline source once the data Secret does, since that holds
// the pool's configuration; before, the host decides if it keeps a pool, else the Machine as it is now.
func (s *scope) role() (string, error) {
	fixed := s.config.Status.Node != nil || s.config.Spec.ConfigSource.Inline != nil
	if fixed && s.config.Status.Pool != "" {
		return s.config.Status.Pool, nil
	}
	if s.config.Spec.PoolRetention == bootstrapv1.RetainOnHost {
		s.kept = s.host.RetainedPool(s.cluster.Name)
	}
	role, why, err := pool.ForMachineOnHost(s.kept, s.config.Spec.Pool, s.machineLabels(), s.pools)
	s.ground, s.before = why, s.config.Status.Pool
	return role, err
}

// register works out what the Node is registered with.
func (r *Reconciler) register(ctx context.Context, s *scope) error {
	hostLabels, err := r.labelHost(ctx, s)
	if err != nil {
		return err
	}
	registration, err := node.Register(node.Input{
		NodeName:       s.nodeName(),
		Cluster:        workload.Identity(ctx, r.ClusterCache, s.cluster),
		ProviderID:     s.host.ProviderID,
		HostUID:        s.host.UID,
		Pool:           s.pool,
		Pools:          s.pools,
		MachineLabels:  s.machineLabels(),
		HostLabels:     hostLabels,
		Config:         s.config,
		RenderedConfig: s.configuration,
		SyncedLabels:   r.SyncedLabels,
	})
	if err != nil {
		return s.againstHost(err)
	}
	s.registration = registration
	return s.checkExtraConfig()
}

// checkExtraConfig finds an extraConfig that can't be used before anything is made for it. Whose machine it will be merged
// for makes no difference to that.
func (s *scope) checkExtraConfig() error {
	if s.config.Spec.ExtraConfig == nil {
		return nil
	}
	if _, err := join.Overlay(s.config, s.registration, join.Cluster{}, join.Credential{}); is[*join.ExtraConfigError](err) {
		return err
	}
	return nil
}
