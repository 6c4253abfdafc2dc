package boot

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// adopt reads back from the workload cluster what was created for a host before clusterctl move, or a restore, dropped
// the status. The host can already have its configuration, and then it only requests its certificate, which it would
// never get if its credential were not recorded again. A host that does not have its configuration requests it again
// and is prepared as usual.
func (r *Phases) adopt(ctx context.Context, s *state) (ctrl.Result, error) {
	var grant *bootstrapv1.GrantedCertificate
	err := s.run(ctx, r.connect, r.remote(func(ctx context.Context, s *state) (err error) {
		if err := r.readNode(ctx, s); err != nil || s.node == nil || string(s.node.UID) != s.Config.Status.NodeRef.UID {
			return err
		}
		var ok bool
		if s.credential, ok, err = join.FindCredential(ctx, s.workload, s.Owner()); err == nil && ok {
			grant, err = join.FindGrant(ctx, s.workload, s.credential.ID)
		}
		return err
	}))
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.credential.ID == "" {
		return r.announce(ctx, s)
	}
	if err := r.findHost(ctx, s); is[*host.NotReadyError](err) {
		s.host = &host.Host{}
	} else if err != nil {
		return ctrl.Result{}, err
	}
	err = s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if needOf(config) != adoption {
			return
		}
		s.chooseHost(&config.Status)
		boot := &config.Status.Boot
		boot.CredentialID, boot.CredentialExpirationTime = s.credential.ID, &metav1.Time{Time: s.credential.Expires}
		if grant != nil {
			config.Status.Certificate = *grant
		}
		// A later time would be wrong, because joinPatience counts from here.
		boot.PreparedTime = &metav1.MicroTime{Time: s.node.CreationTimestamp.Time}
		conditions.Set(config, bootPrepared(metav1.ConditionTrue, bootstrapv1.BootPreparedReason,
			fmt.Sprintf("the record of this boot was lost, and Node %s and join credential %s were found in the workload cluster",
				s.node.Name, s.credential.ID)))
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	return requeueForExtension(s, ctrl.Result{}), nil
}
