package boot

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// adopt reads back from the workload cluster what was created for a host before clusterctl move, or a restore, dropped
// the status. The host can already have its configuration, and then it only requests its certificate, which it would
// never get if its credential were not recorded again. A host that does not have its configuration requests it again
// and is prepared as usual.
func (r *Reconciler) adopt(ctx context.Context, s *scope) (ctrl.Result, error) {
	var (
		credential join.Credential
		found      bool
		grant      *bootstrapv1.GrantedCertificate
		node       = &corev1.Node{}
	)
	err := s.run(ctx, []phase{r.remote(r.connect), r.remote(func(ctx context.Context, s *scope) (err error) {
		err = s.workload.Get(ctx, client.ObjectKey{Name: s.config.Status.NodeRef.Name}, node)
		if apierrors.IsNotFound(err) || err == nil && string(node.UID) != s.config.Status.NodeRef.UID {
			return nil
		}
		if err != nil {
			return err
		}
		if credential, found, err = join.FindCredential(ctx, s.workload, s.owner()); err == nil && found {
			grant, err = join.FindGrant(ctx, s.workload, credential.ID)
		}
		return err
	})})
	if err != nil {
		if failed := failureOf(err); failed.waits {
			return ctrl.Result{RequeueAfter: failed.retry}, nil
		}
		return ctrl.Result{}, err
	}
	if !found {
		return ctrl.Result{}, r.announce(ctx, s)
	}
	if err := r.findHost(ctx, s); is[*host.NotReadyError](err) {
		s.host = &host.Host{}
	} else if err != nil {
		return ctrl.Result{}, err
	}
	err = r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		if needOf(config) != adoption {
			return
		}
		s.chooseHost(&config.Status)
		boot := &config.Status.Boot
		boot.CredentialID, boot.CredentialExpirationTime = credential.ID, &metav1.Time{Time: credential.Expires}
		if grant != nil {
			boot.Certificate = *grant
		}
		boot.PreparedTime = &metav1.MicroTime{Time: node.CreationTimestamp.Time} // not a later time, because joinPatience counts from here
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.BootPreparedReason,
			Message: fmt.Sprintf("Node %s and join credential %s were found in the workload cluster as they were made before the record was lost", node.Name, credential.ID)})
	})
	if errors.Is(err, errAbandoned) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return comeBack(s, ctrl.Result{}), nil
}
