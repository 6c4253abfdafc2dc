package boot

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// reconcilePaused does what cannot wait until the pause ends: it renews the join credential of a host that has its
// configuration, because such a host does not send another request. It writes only to the workload cluster, and deletes
// nothing there: during clusterctl move, the PoolbootConfig with this credential can already belong to another
// management cluster. So the new expiration time is not recorded, and the credential is extended each time that half of
// its life has passed.
func (r *Phases) reconcilePaused(ctx context.Context, s *state, need need) (ctrl.Result, error) {
	switch {
	case need == expiration && s.Config.Status.Boot.CredentialExpirationTime != nil: // reported after the pause
		return ctrl.Result{RequeueAfter: join.Lifetime / 2}, nil
	case need != renewal && need != inlineRenewal:
		return ctrl.Result{}, nil
	}
	why, err := s.findHostLoss(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why == "" || need == inlineRenewal { // otherwise, the boot is withdrawn after the pause
		if wait := untilExtension(s.Config); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		err = s.run(ctx, r.connect, r.remote(func(ctx context.Context, s *state) error {
			_, err := join.ExtendCredential(ctx, s.workload, s.Config.Status.Boot.CredentialID, join.Lifetime)
			if apierrors.IsNotFound(err) {
				return errUpToDate // it is restored, or reported as lost, after the pause
			}
			return err
		}))
	}
	return ctrl.Result{RequeueAfter: join.Lifetime / 2}, err
}
