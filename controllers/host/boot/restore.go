package boot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// A join credential expires if it cannot be extended in time: the manager was down, or the workload cluster was
// unreachable. The host that has it does not send another request. So the credential is created again, unchanged, from
// the Secret that contains the host's configuration.

// restoreCredential creates the join credential of a host again, and returns when it expires. The error is a failure if
// this is impossible. A credential that is missing before it has expired was deleted by a user and is not restored.
func (r *Phases) restoreCredential(ctx context.Context, s *state) (time.Time, error) {
	boot := s.Config.Status.Boot
	key := r.overlayKey(s)
	if s.Config.Spec.IsInline() {
		key = client.ObjectKey{Namespace: s.Config.Namespace, Name: s.Config.Status.DataSecretName}
	}
	lost := func(format string, args ...any) (time.Time, error) {
		why := fmt.Errorf(format, args...)
		return time.Time{}, s.lostCredential(fmt.Errorf("the join credential %s in Secret %s %w", boot.CredentialID, key, why))
	}
	if expires := boot.CredentialExpirationTime; expires == nil || time.Now().Before(expires.Time) {
		// Without a recorded expiration time, a later reconcile still knows that the credential was deleted and did not
		// expire.
		if err := s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) { config.Status.Boot.CredentialExpirationTime = nil }); err != nil {
			return time.Time{}, err
		}
		return lost("was deleted before it expired")
	}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err) && !s.Config.Spec.IsInline():
		return lost("has expired, and the Secret does not exist")
	case err != nil:
		return time.Time{}, err
	}
	credential, err := credentialIn(secret)
	switch {
	case err != nil:
		return lost("can't be read: %w", err)
	case credential.ID != boot.CredentialID:
		return lost("is not the recorded one: the Secret contains %s", credential.ID)
	}
	if err := r.checkApproval(ctx, s); err != nil {
		return time.Time{}, err
	}
	return join.RestoreCredential(ctx, s.workload, s.Owner(), credential, join.Lifetime)
}

// credentialIn reads the join credential from a data Secret or an overlay Secret.
func credentialIn(secret *corev1.Secret) (join.Credential, error) {
	raw := secret.Data[bootstrapv1.DataSecretValueKey]
	if overlay, ok := secret.Data[bootstrapv1.OverlayKey]; ok {
		var err error
		if raw, err = ignition.PackedOverlay(overlay).Unpack(); err != nil {
			return join.Credential{}, err
		}
	}
	config, err := ignition.Parse(raw)
	if err != nil {
		return join.Credential{}, err
	}
	return join.CredentialIn(config)
}

// lostCredential returns the failure of a host whose join credential can no longer be used.
func (s *state) lostCredential(why error) error {
	if s.Config.Spec.IsInline() {
		return fault(bootstrapv1.BootFailedReason, "%w: %s", why, outlook.HowToReplace(s.Config))
	}
	return fault(bootstrapv1.JoinCredentialExpiredReason,
		"%w: if the host does not request its configuration again, %s", why, outlook.HowToReplace(s.Config))
}

// reportExpired reports that a host can no longer join with the configuration that it has, unless a kubelet has
// registered. Such a host does not send another request on its own, so a user must act. If it does send one, it gets
// another credential, and the condition is True again.
func (r *Phases) reportExpired(ctx context.Context, s *state, why error) error {
	if err := s.run(ctx, r.connect, r.readNode); err != nil {
		return err
	}
	isNew := false
	err := s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if need := needOf(config); need != renewal && need != expiration {
			isNew = false
			return
		}
		config.Status.Boot.CredentialExpirationTime = nil
		isNew = !record.IsCredentialLost(config) && (s.node == nil || !record.HasKubelet(s.node))
		if isNew {
			conditions.Set(config, bootPrepared(metav1.ConditionFalse, bootstrapv1.JoinCredentialExpiredReason, why.Error()))
		}
	})
	if err == nil && isNew {
		metrics.StageBlocked(s.Config, record.StageJoining, bootstrapv1.JoinCredentialExpiredReason)
		r.event(s, corev1.EventTypeWarning, bootstrapv1.JoinCredentialExpiredReason, "%s", why)
	}
	return err
}

// awaitExpiration waits until a join credential that is no longer extended expires, and reports it.
func (r *Phases) awaitExpiration(ctx context.Context, s *state) (ctrl.Result, error) {
	boot := s.Config.Status.Boot
	if boot.CredentialExpirationTime == nil {
		return ctrl.Result{}, nil
	}
	if wait := time.Until(boot.CredentialExpirationTime.Time); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, r.reportExpired(ctx, s, s.lostCredential(fmt.Errorf(
		"the host has not joined within %s of receiving its configuration, and its join credential %s has expired", joinPatience, boot.CredentialID)))
}
