package boot

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
)

// fieldOwner is the field manager of server-side apply.
const fieldOwner = client.FieldOwner("poolboot")

// storeOverlay stores the part of the host's configuration that belongs to this machine where the config server reads
// it. The config server does not serve it until its join credential is recorded.
func (r *Phases) storeOverlay(ctx context.Context, s *state) error {
	overlay, err := s.parts.Overlay(s.credential)
	if err != nil {
		return err
	}
	content, err := ignition.PackOverlay(overlay)
	if err != nil {
		return err
	}
	key := r.overlayKey(s)
	annotations := map[string]string{
		bootstrapv1.OverlayExpiresAnnotation:       s.credential.Expires.UTC().Format(time.RFC3339),
		bootstrapv1.OverlayConfigurationAnnotation: s.configuration,
		bootstrapv1.CredentialIDAnnotation:         s.credential.ID,
	}
	if agent := s.parts.Agent; agent != nil {
		annotations[bootstrapv1.OverlayAgentAnnotation] = agent.Program.SHA512
	}
	secret := corev1apply.Secret(key.Name, key.Namespace).
		WithType(corev1.SecretTypeOpaque).
		WithLabels(map[string]string{bootstrapv1.OverlayLabel: string(s.Config.UID)}).
		WithAnnotations(annotations).
		WithData(map[string][]byte{bootstrapv1.OverlayKey: []byte(content)})
	if err := r.Client.Apply(ctx, secret, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("overlay Secret %s: %w", key, err)
	}
	return nil
}

func (r *Phases) overlayKey(s *state) client.ObjectKey {
	return client.ObjectKey{Namespace: r.OverlayNamespace, Name: record.OverlayName(s.Config.UID)}
}

// storeAssignment stores what the host should run after it joined, and sets what its overlay is built from. It does so
// before the host can get the overlay: a host that has an agent also has an assignment. A host for whose architecture
// no agent is offered has neither.
func (r *Phases) storeAssignment(ctx context.Context, s *state) error {
	s.parts = join.Machine{Config: s.Config, Registration: s.registration, Cluster: s.facts, Network: s.network}
	if r.Offer == nil {
		return nil
	}
	offer, err := r.Offer()
	if err != nil {
		return err
	}
	input := join.Input{
		Config: s.Config, Pool: &s.pool, Pools: s.pools, Registration: s.registration, Cluster: s.facts, Offer: offer, Network: s.network,
	}
	if s.parts, err = join.MachineOf(input, s.architecture); err != nil || s.parts.Agent == nil {
		return err
	}
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: s.configuration}
	input.Rendered, err = r.rendered.Get(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return notRendered(key, &s.pool)
	case err != nil:
		return err
	}
	document, err := join.Document(input)
	if err != nil {
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
