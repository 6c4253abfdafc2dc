package boot

import (
	"context"
	"errors"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/remedy"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// A join credential expires if it cannot be extended in time: the manager was down, or the workload cluster was
// unreachable. The host that has it does not send another request. So the credential is created again, unchanged, from
// the Secret that contains the host's configuration.

// restoreCredential creates the join credential of a host again, and returns when it expires. The error is a failure if
// this is impossible. A credential that is missing before it has expired was deleted by a user and is not restored.
func (r *Reconciler) restoreCredential(ctx context.Context, s *scope) (time.Time, error) {
	boot := s.config.Status.Boot
	key := r.overlayKey(s)
	if s.config.Spec.IsInline() {
		key = client.ObjectKey{Namespace: s.config.Namespace, Name: s.config.Status.DataSecretName}
	}
	lost := func(format string, args ...any) (time.Time, error) {
		return time.Time{}, fault(s.lostReason(), "the join credential %s in Secret %s %w: %s", boot.CredentialID, key, fmt.Errorf(format, args...), s.lostRemedy())
	}
	if expires := boot.CredentialExpirationTime; expires == nil || time.Now().Before(expires.Time) {
		// Without a recorded expiration time, a later reconcile still knows that the credential was deleted and did not
		// expire.
		if err := r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) { config.Status.Boot.CredentialExpirationTime = nil }); err != nil {
			return time.Time{}, err
		}
		return lost("was deleted before its time")
	}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err) && !s.config.Spec.IsInline():
		return lost("has expired, and the Secret does not exist")
	case err != nil:
		return time.Time{}, err
	}
	credential, err := credentialIn(secret)
	switch {
	case err != nil:
		return lost("can't be read: %w", err)
	case credential.ID != boot.CredentialID:
		return lost("is not the one there, %s", credential.ID)
	}
	if err := r.checkApproval(ctx, s); err != nil {
		return time.Time{}, err
	}
	return join.RestoreCredential(ctx, s.workload, s.owner(), credential, join.Life)
}

// credentialIn reads the join credential from a data Secret or an overlay Secret.
func credentialIn(secret *corev1.Secret) (join.Credential, error) {
	raw, err := secret.Data[bootstrapv1.DataSecretValueKey], error(nil)
	if overlay, is := secret.Data[bootstrapv1.OverlayKey]; is {
		raw, err = ignition.PackedOverlay(overlay).Unpack()
	}
	if err != nil {
		return join.Credential{}, err
	}
	config, err := ignition.Parse(raw)
	if err != nil {
		return join.Credential{}, err
	}
	return join.CredentialIn(config)
}

// lostReason returns the reason for a host whose join credential can no longer be used.
func (s *scope) lostReason() string {
	if s.config.Spec.IsInline() {
		return bootstrapv1.BootFailedReason
	}
	return bootstrapv1.JoinCredentialExpiredReason
}

// lostRemedy returns the remedy for such a host.
func (s *scope) lostRemedy() string {
	if s.config.Spec.IsInline() {
		return remedy.Replace(s.config)
	}
	return "if the host does not ask for its configuration again, " + remedy.Replace(s.config)
}

// giveUp reports that a host can no longer join with the configuration that it has, unless a kubelet has registered.
// Such a host does not send another request on its own, so a user must act. If it does send one, it gets another
// credential, and the condition is True again.
func (r *Reconciler) giveUp(ctx context.Context, s *scope, why error) error {
	if s.workload == nil {
		if err := r.remote(r.connect)(ctx, s); err != nil {
			return err
		}
	}
	came := false
	if made := s.config.Status.NodeRef; made.IsDefined() {
		node := &corev1.Node{}
		if err := s.workload.Get(ctx, client.ObjectKey{Name: made.Name}, node); client.IgnoreNotFound(err) != nil {
			return err
		}
		came = record.HasKubelet(node)
	}
	told := false
	err := r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		if told = false; !isStanding(needOf(config)) {
			return
		}
		config.Status.Boot.CredentialExpirationTime = nil
		if told = !came && !record.IsCredentialLost(config); told {
			conditions.Set(config, metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionFalse,
				Reason: bootstrapv1.JoinCredentialExpiredReason, Message: why.Error()})
		}
	})
	if errors.Is(err, errAbandoned) {
		return nil
	}
	if err == nil && told {
		metrics.StageBlocked(s.config, record.StageJoining, bootstrapv1.JoinCredentialExpiredReason)
		r.Recorder.Eventf(s.config, s.related(), corev1.EventTypeWarning, bootstrapv1.JoinCredentialExpiredReason, action, "%s", why)
	}
	return err
}

// keepStanding waits until a join credential that is no longer extended expires, and reports it.
func (r *Reconciler) keepStanding(ctx context.Context, s *scope) (ctrl.Result, error) {
	expires := s.config.Status.Boot.CredentialExpirationTime
	if expires == nil {
		return ctrl.Result{}, nil
	}
	if left := time.Until(expires.Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	err := r.giveUp(ctx, s, fmt.Errorf("the host has not joined within %s of getting its configuration, and its join credential %s has expired: %s",
		joinPatience, s.config.Status.Boot.CredentialID, s.lostRemedy()))
	if failed := failureOf(err); err != nil && failed.waits {
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	}
	return ctrl.Result{}, err
}
