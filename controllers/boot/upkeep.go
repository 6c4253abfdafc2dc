package boot

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// joinPatience is how long the join credential of a host is renewed after its configuration was handed out. This is
// enough for images that rewrite themselves, firmware that checks memory, and two reboots of slow hardware.
const joinPatience = 2 * time.Hour

// keepServed renews the join credential of a host that has its configuration until the host has joined: the host does
// not send another request if it reboots in the meantime. If this fails, the boot stays prepared and the renewal is
// retried.
func (r *Reconciler) keepServed(ctx context.Context, s *scope) (ctrl.Result, error) {
	err := s.run(ctx, []phase{r.remote(r.connect), r.remote(r.extendCredential)})
	switch failed := failureOf(err); {
	case err == nil:
		return comeBack(s, ctrl.Result{}), nil
	case errors.Is(err, errAbandoned):
		return ctrl.Result{}, nil
	case failed.waits:
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	}
	return ctrl.Result{}, err
}

// comeBack returns a result that requeues no later than the join credential must be extended.
func comeBack(s *scope, result ctrl.Result) ctrl.Result {
	if s.config.Status.Boot.CredentialExpirationTime == nil {
		return result
	}
	if next := time.Until(extensionDue(s.config)); result.RequeueAfter == 0 || next < result.RequeueAfter {
		result.RequeueAfter = max(next, retryInterval)
	}
	return result
}

// untilExtension returns how long the join credential needs no extension, or 0 if its expiration time is not recorded.
func untilExtension(config *bootstrapv1.PoolbootConfig) time.Duration {
	if config.Status.Boot.CredentialExpirationTime == nil {
		return 0
	}
	return time.Until(extensionDue(config))
}

// extensionDue returns when the join credential must be extended: when half of its life has passed.
func extensionDue(config *bootstrapv1.PoolbootConfig) time.Time {
	return config.Status.Boot.CredentialExpirationTime.Add(-join.Life / 2)
}

// extendCredential extends the join credential of a host when that is due, and restores it if it has expired.
func (r *Reconciler) extendCredential(ctx context.Context, s *scope) error {
	boot := s.config.Status.Boot
	if boot.CredentialExpirationTime != nil && time.Now().Before(extensionDue(s.config)) {
		return nil
	}
	expires, err := join.ExtendCredential(ctx, s.workload, boot.CredentialID, join.Life)
	if apierrors.IsNotFound(err) {
		expires, err = r.restoreCredential(ctx, s)
		if lost := (*failure)(nil); errors.As(err, &lost) && lost.reason == bootstrapv1.JoinCredentialExpiredReason {
			return r.giveUp(ctx, s, lost)
		}
	}
	if err != nil {
		return err
	}
	r.outages.clear(s.workloadKey())
	wanted := false
	err = r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		if wanted = record.IsCredential(config, boot.CredentialID); wanted {
			config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expires}
		}
	})
	if errors.Is(err, errAbandoned) || err == nil && !wanted { // the host has joined in the meantime, or the config is being deleted
		return errors.Join(err, join.DeleteCredential(ctx, s.workload, boot.CredentialID))
	}
	return err
}
