package boot

import (
	"context"
	"errors"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// choosePool sets the pool that the Machine boots into, and the rendered config that this pool hands out.
func (r *Phases) choosePool(ctx context.Context, s *state) error {
	var err error
	if s.pools, err = s.Pools(ctx); err != nil {
		return err
	}
	if err := s.decidePool(); err != nil {
		return err
	}
	chosen, err := pool.Boot{Config: s.Config, Pools: s.pools}.Pool(s.assigned.Role)
	if err != nil {
		return err
	}
	s.pool = *chosen
	switch {
	case s.hasConfiguration():
		s.configuration = s.Config.Status.Boot.ServedConfiguration.Name
	case s.pool.Status.Configuration.IsDefined():
		s.configuration = s.pool.Status.Configuration.Name
	default:
		return fault(bootstrapv1.PoolNotRenderedReason, "MachineConfigPool %s/%s has no status.configuration yet: see its conditions",
			s.pool.Namespace, s.pool.Name)
	}
	return nil
}

// hasConfiguration reports whether the host can have the recorded configuration already, and does not request it now:
// with an inline source, or if its Node was deleted before its kubelet registered. Another configuration would be
// recorded for a host that does not run it.
func (s *state) hasConfiguration() bool {
	if s.Config.Status.Boot.ServedConfiguration.Name == "" {
		return false
	}
	return s.Config.Spec.IsInline() || !record.IsRequestPending(s.Config) && s.previousRole == s.pool.Spec.PoolRole
}

// decidePool decides the pool of a host that is about to boot, so the pool that the host keeps counts. With an inline
// source, the pool is that of the data Secret, which only the phases of the bootstrap data read.
func (s *state) decidePool() (err error) {
	if s.Config.Spec.IsInline() && s.Config.Status.PoolRole == "" {
		return waiting(errors.New("the pool of the data Secret is not recorded yet"))
	}
	boot := pool.Boot{Config: s.Config, Machine: s.Machine, Pools: s.pools}
	if s.host != nil && s.host.Object != nil {
		boot.Host = s.host.Object
	}
	s.previousRole = s.Config.Status.PoolRole
	s.assigned, err = pool.ForBoot(boot)
	return err
}

// register computes what the Node is registered with.
func (r *Phases) register(ctx context.Context, s *state) error {
	hardware, source, err := r.hardware(ctx, s)
	if err != nil {
		return err
	}
	derived, err := s.deriveLabels(hardware)
	if err != nil {
		return err
	}
	var machineLabels map[string]string
	if s.Machine != nil {
		machineLabels = s.Machine.Labels
	}
	cloudProviderSource, err := r.findCloudProvider(ctx, s)
	if err != nil {
		return err
	}
	arch, archSource := host.CPUArch(hardware, source)
	s.architecture = s.architectureOf(arch)
	registration, err := registration.Register(registration.Sources{
		NodeName:       registration.Name(registration.Naming{Config: s.Config, Machine: s.Machine, Host: s.host.Name}),
		Cluster:        workload.Identity(ctx, r.ClusterCache, s.Cluster),
		ProviderID:     s.host.ProviderID,
		HostUID:        s.host.UID,
		CPUArch:        arch,
		CPUArchSource:  archSource,
		Pool:           s.pool,
		Pools:          s.pools,
		MachineLabels:  machineLabels,
		DerivedLabels:  derived,
		Config:         s.Config,
		RenderedConfig: s.configuration,
		SyncedLabels:   r.SyncedLabels,

		CloudProviderSource: cloudProviderSource,
	})
	if err != nil {
		return s.withRemedy(err)
	}
	s.registration = registration
	return join.CheckExtraConfig(s.Config) // before anything is created for the host
}
