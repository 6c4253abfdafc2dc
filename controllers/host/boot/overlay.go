package boot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
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
