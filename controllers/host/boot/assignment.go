package boot

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
)

// storeAssignment stores what the host should run after it joined, and sets what its overlay is built from. It does so
// before the host can get the overlay: a host that has an agent also has an assignment. A host for whose architecture
// no agent is offered has neither.
func (r *Phases) storeAssignment(ctx context.Context, s *state) error {
	s.parts = join.Machine{Config: s.Config, Registration: s.registration, Cluster: s.facts}
	if r.Offer == nil {
		return nil
	}
	offer, err := r.Offer()
	if err != nil || offer.Agent.SHA512[s.architecture] == "" {
		return err
	}
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: s.configuration}
	rendered, err := r.rendered.Get(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return notRendered(key, &s.pool)
	case err != nil:
		return err
	}
	input := join.Input{
		Config: s.Config, Pool: &s.pool, Pools: s.pools, Rendered: rendered,
		Registration: s.registration, Cluster: s.facts, Offer: offer,
	}
	document, err := join.Document(input)
	if err != nil {
		return err
	}
	if s.parts, err = join.MachineOf(input, s.architecture); err != nil {
		return err
	}
	_, err = assignments.Secrets{Client: r.Client, Namespace: r.OverlayNamespace}.Store(ctx, s.Config.UID, document, s.facts.CA)
	return err
}

// architectureOf returns the architecture of a host as Go names it: that of the inspection, else that of the
// BareMetalHost, else that of the pool. It is empty for an architecture without a name.
func (s *state) architectureOf(inspected string) string {
	cpu := inspected
	if bmh := s.host.Object; bmh != nil {
		cpu = cmp.Or(cpu, bmh.Spec.Architecture)
	}
	if cpu == "" {
		return string(s.pool.Spec.Hosts.DefaultArchitecture())
	}
	return registration.GoArch(cpu)
}
