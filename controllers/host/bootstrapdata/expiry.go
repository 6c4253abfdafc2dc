package bootstrapdata

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// guardTokenAction is the action in the events about the use of a token.
const guardTokenAction = "GuardToken"

// guardToken expires the token of a host that does not join in time after it was provisioned, and records the addresses
// from which the token was used and to which it is bound.
func (r *Phases) guardToken(ctx context.Context, s *state) (result ctrl.Result, err error) {
	if s.Cluster == nil {
		return ctrl.Result{}, nil
	}
	if hasToken(s.Config) {
		if result, err = r.expire(ctx, s); err != nil {
			return result, err
		}
	}
	addresses, err := r.setAddresses(ctx, s)
	s.Report(func(_, after *bootstrapv1.PoolbootConfig) { r.reportAddresses(after, addresses) })
	return result, err
}

// hasToken reports whether a PoolbootConfig has its own token. The token of an enrolled host is that of its Enrollment.
func hasToken(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && record.TokenOf(config).Hash != "" &&
		config.Spec.Enrolled() == nil
}

// expire expires a token whose lifetime is over, or returns when to check it again.
func (r *Phases) expire(ctx context.Context, s *state) (ctrl.Result, error) {
	expiration, err := r.expirationTime(ctx, r.Client, s)
	if err != nil || expiration.IsZero() {
		return ctrl.Result{}, err
	}
	if remaining := time.Until(expiration); remaining > 0 {
		return ctrl.Result{RequeueAfter: remaining}, nil
	}
	current := &bootstrapv1.PoolbootConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.Config), current); err != nil || !hasToken(current) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	live := &state{Scope: &scope.Scope{Config: current, Machine: s.Machine}}
	if expiration, err := r.expirationTime(ctx, r.APIReader, live); err != nil || expiration.IsZero() || time.Now().Before(expiration) {
		return ctrl.Result{}, err // the cache was stale: its next event triggers a reconcile
	}
	before := current.DeepCopy()
	record.ExpireToken(current)
	if err := r.Client.Patch(ctx, current, status.Locked(before)); err != nil {
		return ctrl.Result{}, err
	}
	s.Wrote(current)
	return ctrl.Result{}, nil
}

// expirationTime returns when a token expires. It returns zero if the token has expired, has no lifetime or is about to
// be rotated, or if its host is not provisioned.
func (r *Phases) expirationTime(ctx context.Context, c client.Reader, s *state) (time.Time, error) {
	if r.TokenLifetime == 0 || record.IsTokenExpired(s.Config) || record.IsRotationRequested(s.Config) {
		return time.Time{}, nil
	}
	bmh, err := s.Host(ctx, c)
	if err != nil || bmh == nil || bmh.State != bmov1alpha1.StateProvisioned || bmh.Object.Status.OperationHistory.Provision.End.IsZero() {
		return time.Time{}, err
	}
	since := bmh.Object.Status.OperationHistory.Provision.End.Time
	if rotated, err := time.Parse(time.RFC3339, s.Config.Annotations[bootstrapv1.TokenRotatedAnnotation]); err == nil && rotated.After(since) {
		since = rotated
	}
	return since.Add(r.TokenLifetime), nil
}

// setTokenUsable sets the condition TokenUsable. A token that has never been unusable has none.
func (r *Phases) setTokenUsable(config *bootstrapv1.PoolbootConfig) {
	if !hasToken(config) {
		return
	}
	usable := metav1.Condition{Type: bootstrapv1.TokenUsableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.TokenLiveReason}
	if record.IsTokenExpired(config) {
		usable.Status, usable.Reason = metav1.ConditionFalse, bootstrapv1.TokenExpiredReason
		usable.Message = fmt.Sprintf("the host did not join within %s after it was provisioned, so its token is no longer valid: %s", r.TokenLifetime, outlook.HowToRotate(config))
	}
	current := conditions.Get(config, usable.Type)
	if current == nil && usable.Status == metav1.ConditionFalse || current != nil && current.Status != usable.Status {
		conditions.Set(config, usable)
	}
}

// reportUsable reports by an event that a token can no longer be used.
func (r *Phases) reportUsable(before, after *bootstrapv1.PoolbootConfig) {
	if conditions.IsFalse(after, bootstrapv1.TokenUsableCondition) && !conditions.IsFalse(before, bootstrapv1.TokenUsableCondition) {
		usable := conditions.Get(after, bootstrapv1.TokenUsableCondition)
		metrics.TokenEvent(after, usable.Reason)
		r.event(after, corev1.EventTypeWarning, usable.Reason, guardTokenAction, "%s", usable.Message)
	}
}
