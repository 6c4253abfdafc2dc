package boot

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// keepPaused does what cannot wait until the pause ends: it renews the join credential of a host that has its
// configuration, because such a host does not send another request. It writes only to the workload cluster, and deletes
// nothing there: during clusterctl move, the PoolbootConfig with this credential can already belong to another
// management cluster. So the new expiration time is not recorded, and the credential is extended each time that half of
// its life has passed.
func (r *Reconciler) keepPaused(ctx context.Context, s *scope, need need) (ctrl.Result, error) {
	switch {
	case need == standing && s.config.Status.Boot.CredentialExpirationTime != nil: // its expiry is reported after the pause
		return ctrl.Result{RequeueAfter: join.Life / 2}, nil
	case need != upkeep && need != inlineUpkeep:
		return ctrl.Result{}, nil
	}
	if left, err := s.hostLeft(ctx, r.Client); err != nil || left != "" && need == upkeep { // the boot is withdrawn after the pause
		return ctrl.Result{RequeueAfter: join.Life / 2}, err
	}
	if left := untilExtension(s.config); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	err := s.run(ctx, []phase{r.remote(r.connect), r.remote(func(ctx context.Context, s *scope) error {
		_, err := join.ExtendCredential(ctx, s.workload, s.config.Status.Boot.CredentialID, join.Life)
		return err
	})})
	switch failed := failureOf(err); {
	case err == nil:
		return ctrl.Result{RequeueAfter: join.Life / 2}, nil
	case failed.waits:
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	case apierrors.IsNotFound(err): // it is restored, or reported as lost, after the pause
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}
