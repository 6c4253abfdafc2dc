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

// requeueForExtension returns a result that requeues no later than the join credential must be extended.
func requeueForExtension(s *state, result ctrl.Result) ctrl.Result {
	if s.Config.Status.Boot.CredentialExpirationTime == nil {
		return result
	}
	if next := untilExtension(s.Config); result.RequeueAfter == 0 || next < result.RequeueAfter {
		result.RequeueAfter = max(next, retryInterval)
	}
	return result
}

// untilExtension returns how long it takes until the join credential must be extended: when half of its life has
// passed, or now if its expiration time is not recorded.
func untilExtension(config *bootstrapv1.PoolbootConfig) time.Duration {
	expires := config.Status.Boot.CredentialExpirationTime
	if expires == nil {
		return 0
	}
	return time.Until(expires.Add(-join.Lifetime / 2))
}

// extendCredential extends the join credential of a host when that is due, and restores it if it has expired.
func (r *Phases) extendCredential(ctx context.Context, s *state) error {
	if untilExtension(s.Config) > 0 {
		return nil
	}
	id := s.Config.Status.Boot.CredentialID
	expires, err := join.ExtendCredential(ctx, s.workload, id, join.Lifetime)
	if apierrors.IsNotFound(err) {
		expires, err = r.restoreCredential(ctx, s)
		if failed, ok := errors.AsType[*failure](err); ok && failed.reason == bootstrapv1.JoinCredentialExpiredReason {
			return r.reportExpired(ctx, s, failed)
		}
	}
	if err != nil {
		return err
	}
	r.outages.clear(s.workloadKey())
	isCurrent := false
	err = s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if isCurrent = record.IsCredential(config, id); isCurrent {
			config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expires}
		}
	})
	if errors.Is(err, errDeleting) || err == nil && !isCurrent { // the host has joined in the meantime
		return errors.Join(err, join.DeleteCredential(ctx, s.workload, id))
	}
	return err
}
