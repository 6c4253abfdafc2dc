package bootstrapdata

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// rotateToken writes a new token to the data Secret and then records its hash, which revokes the old token. Until the
// hash is recorded, the config server answers 503 to unknown tokens, so a crash in between harms no host. The next try
// finds a token in the Secret that differs from the recorded one, and only records it.
func (r *Phases) rotateToken(ctx context.Context, s *state) error {
	if why := notRotatable(s.Config); why != "" {
		return r.refuseRotation(ctx, s, why)
	}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.Config), secret)
	switch {
	case apierrors.IsNotFound(err):
		return r.refuseRotation(ctx, s, fmt.Sprintf("Secret %s does not exist", s.Config.Name))
	case err != nil:
		return err
	case !metav1.IsControlledBy(secret, s.Config):
		return r.refuseRotation(ctx, s, fmt.Sprintf("Secret %s is not controlled by this PoolbootConfig", s.Config.Name))
	}
	pointer, address, err := parsePointer(s.Config, secret)
	if err != nil {
		return r.refuseRotation(ctx, s, fmt.Sprintf("Secret %s does not contain what Poolboot wrote (%s)", s.Config.Name, err))
	}
	if isRecordedToken(s.Config, pointer.Token) {
		if pointer, err = r.newPointer(s, rotatedRole(s.Config, address.Role), address.PointerID); err != nil {
			return err
		}
		if err := r.replacePointer(ctx, secret, pointer); err != nil {
			return err
		}
	}
	annotations := ownerOf(s.Config).Annotations(pointer.Token)
	annotations[bootstrapv1.PointerIDAnnotation] = address.PointerID
	annotations[bootstrapv1.TokenRotatedAnnotation] = time.Now().UTC().Format(time.RFC3339)
	annotations[bootstrapv1.RotateTokenAnnotation], annotations[bootstrapv1.TokenStateAnnotation] = "", ""
	if err := s.patchAnnotations(ctx, annotations); err != nil {
		return err
	}
	metrics.TokenEvent(s.Config, bootstrapv1.EventTokenRotated)
	r.event(s.Config, corev1.EventTypeNormal, bootstrapv1.EventTokenRotated, "RotateToken",
		"Secret %s contains a new token, and the old token is no longer valid: the host gets the new token when Metal3 provisions it again", secret.Name)
	return nil
}

// rotatedRole returns the pool role in the URL of a rotated pointer. While no pool is decided, for example because the
// labels name two, it is the role in the previous URL: the old token must be revoked without waiting for a user, and
// the role in the URL is only information for users. The config server uses the recorded pool, but it answers 404 to a
// URL without a role, which would end the boot.
func rotatedRole(config *bootstrapv1.PoolbootConfig, before string) string {
	return cmp.Or(config.Status.PoolRole, before, poolv1.RoleWorker)
}

// notRotatable returns why the token of a config cannot be rotated, or "" if it can.
func notRotatable(config *bootstrapv1.PoolbootConfig) string {
	switch {
	case record.IsEnrolled(config):
		return "the host enrolled with a token: " + outlook.HowToRotate(config)
	case config.Spec.IsInline():
		return "an inline data Secret has no token: to revoke its join credential, " + outlook.HowToReplace(config)
	case record.HasJoined(config):
		return "the token was revoked when the Node was Ready: to boot the host again, " + outlook.HowToReplace(config)
	}
	return ""
}

// refuseRotation removes the request for a rotation, and reports the reason in an event.
func (r *Phases) refuseRotation(ctx context.Context, s *state, why string) error {
	if err := s.patchAnnotations(ctx, map[string]string{bootstrapv1.RotateTokenAnnotation: ""}); err != nil {
		return err
	}
	r.event(s.Config, corev1.EventTypeWarning, bootstrapv1.EventTokenNotRotated, "RotateToken", "%s", why)
	return nil
}

// replacePointer writes a pointer to a data Secret, unless another client has changed the Secret in the meantime.
func (r *Phases) replacePointer(ctx context.Context, secret *corev1.Secret, pointer ignition.Pointer) error {
	value, err := pointer.Marshal()
	if err != nil {
		return err
	}
	before := secret.DeepCopy()
	secret.Data[bootstrapv1.DataSecretValueKey] = value
	return r.Client.Patch(ctx, secret, status.Locked(before))
}
