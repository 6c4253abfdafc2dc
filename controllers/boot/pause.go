package boot

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// keepPaused does what cannot wait for the end of a pause: it keeps the join credential alive of a host that has its
// configuration, because such a host does not ask again. It writes to the workload cluster only, and deletes nothing
// there: during clusterctl move the PoolbootConfig may already be another management cluster's, with this credential.
// So the new end is not on record, and the credential is extended whenever half of its life is over.
func (r *Reconciler) keepPaused(ctx context.Context, s *scope, need need) (ctrl.Result, error) {
	switch {
	case need == standing && s.config.Status.Boot.CredentialExpirationTime != nil: // its end is reported after the pause
		return ctrl.Result{RequeueAfter: join.Life / 2}, nil
	case need != upkeep && need != inlineUpkeep:
		return ctrl.Result{}, nil
	}
	if left, err := s.hostLeft(ctx, r.Client); err != nil || left != "" && need == upkeep { // taken back after the pause
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
	case apierrors.IsNotFound(err): // it is restored, or reported as lost, when the pause is over
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}
