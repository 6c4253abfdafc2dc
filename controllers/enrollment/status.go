package enrollment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// refusalTTL is how long a refusal is recorded after the last request of the host.
const refusalTTL = 10 * time.Minute

// writeStatus writes the status and returns when to reconcile again.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, newStatus *poolv1.EnrollmentStatus) (ctrl.Result, error) {
	var next time.Duration
	requeueAfter := func(in time.Duration) {
		if next == 0 || in < next {
			next = in
		}
	}
	newStatus.Requests = slices.DeleteFunc(newStatus.Requests, func(request poolv1.EnrollmentRequest) bool {
		remaining := request.RequestedTime.Add(refusalTTL).Sub(s.now)
		if remaining <= 0 || remaining > 2*refusalTTL { // a time in the future is from a wrong clock
			return true
		}
		requeueAfter(remaining)
		return false
	})
	switch {
	case len(newStatus.Requests) == 0:
	case s.nodesErr != nil:
		requeueAfter(nodesRetry)
	case s.isSlow:
		requeueAfter(status.ConflictRetry)
	}
	spec := s.enrollment.Spec
	if s.now.Before(spec.ExpirationTime.Time) {
		requeueAfter(spec.ExpirationTime.Sub(s.now))
	}
	ca, err := r.ServerCA()
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("CA of the config server: %w", err)
	}
	newStatus.ObservedGeneration = s.enrollment.Generation
	newStatus.UsedCount = new(int32(len(s.enrollment.AdmittedNames())))
	newStatus.URL, newStatus.CertificateAuthority = access.EnrollmentURL(r.ServerURL, spec.PoolRole, client.ObjectKeyFromObject(s.enrollment)), string(ca)
	meta.SetStatusCondition(&newStatus.Conditions, s.ready())
	meta.SetStatusCondition(&newStatus.Conditions, s.notPaused)
	written := s.enrollment.DeepCopy()
	written.Status = *newStatus
	if err := r.patchStatus(ctx, s, written); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// patchStatus writes the status with an optimistic lock, so that it does not remove a request that was recorded in the
// meantime.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, written *poolv1.Enrollment) error {
	if err := status.Patch(ctx, r.Client, s.enrollment, written); err != nil {
		return err
	}
	s.enrollment = written
	return nil
}

// ready returns the condition Ready.
func (s *scope) ready() metav1.Condition {
	spec := s.enrollment.Spec
	remaining := int(spec.MaxUses) - len(s.enrollment.AdmittedNames())
	c := metav1.Condition{Type: poolv1.EnrollmentReadyCondition, Status: metav1.ConditionFalse, ObservedGeneration: s.enrollment.Generation}
	switch {
	case s.obstacle != nil:
		c.Reason, c.Message = s.obstacle.Reason, s.obstacle.Message
	case remaining <= 0:
		c.Reason = poolv1.EnrollmentUsedUpReason
		c.Message = usedUp(spec)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, poolv1.EnrollmentAdmitsReason
		c.Message = fmt.Sprintf("%d more host(s) with names like %s are admitted to pool %s until %s",
			remaining, spec.NamePattern, spec.PoolRole, spec.ExpirationTime.UTC().Format(time.RFC3339))
		if s.nodesErr != nil {
			c.Message += fmt.Sprintf("; new hosts wait because the Nodes of Cluster %s cannot be read: Poolboot retries; see the condition %s of the Cluster",
				spec.ClusterName, clusterv1.ClusterRemoteConnectionProbeCondition)
		}
	}
	return c
}

// usedUp returns the message for an Enrollment without remaining uses.
func usedUp(spec poolv1.EnrollmentSpec) string {
	return fmt.Sprintf("all %d uses are taken: increase spec.maxUses of the Enrollment, or create another Enrollment", spec.MaxUses)
}
