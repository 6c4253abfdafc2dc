package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
)

// refusedInterval is the time after a refusal during which further requests of the host are not recorded. It is how
// long an operator who removes the cause of the refusal waits for the next decision.
const refusedInterval = 15 * time.Second

// serveEnrolled answers a host without a Machine, which sends an enrollment token and the requested name. An admitted
// host gets the same answers as any other host. Requests without a valid token, or for a name that the token does not
// allow, cause no write.
func (v *view) serveEnrolled(ctx context.Context, w *answer, r *http.Request, target route) error {
	// The admission and the overlay share one wait: a host gives up after ten seconds.
	ctx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	token := bearerToken(r)
	enrollment, err := v.authorizeName(ctx, token, target)
	if err != nil {
		return err
	}
	request := admissionRequest{
		config: types.NamespacedName{Namespace: enrollment.Namespace, Name: target.name}, address: addressOf(r).String(),
		pointerID: access.PointerID(enrollment.Namespace, enrollment.Name, target.name),
	}
	record, err := v.waitForAdmission(ctx, *enrollment, request)
	if err != nil {
		return err
	}
	w.config = record.NamespacedName
	return v.serveConfig(ctx, w, r, record, target, token)
}

// admissionRequest is a request of a host to be admitted.
type admissionRequest struct {
	// config is the name of the host's PoolbootConfig after the admission, and of its Node.
	config             types.NamespacedName
	address, pointerID string
}

// authorizeName returns the Enrollment of a token, and checks that it allows the requested name.
func (v *view) authorizeName(ctx context.Context, token string, target route) (*Enrollment, error) {
	if token == "" {
		return nil, unauthorized("a bearer token is required: send the enrollment token")
	}
	enrollment, err := v.authenticateEnrollment(ctx, target.object, token)
	if err != nil {
		return nil, err
	}
	if enrollment.Role != target.role {
		return nil, unauthorized("the enrollment token is for another pool: send that of an Enrollment of this pool")
	}
	if reason := access.CheckName(enrollment.Names, target.name); reason != "" {
		return nil, forbidden("the name in ?name= is not allowed: %s", reason)
	}
	endTurn(ctx)
	return enrollment, nil
}

// authenticateEnrollment returns the Enrollment with that name if the token is its own and has not expired. Another
// token gets 503: it can be a new token in the Secret, which the server does not read.
func (v *view) authenticateEnrollment(ctx context.Context, name types.NamespacedName, token string) (*Enrollment, error) {
	enrollment, err := v.Enrollments.Get(ctx, name)
	switch {
	case err != nil:
		return nil, unavailable(fmt.Errorf("finding Enrollment %s: %w", name, err))
	case enrollment == nil || !enrollment.accepts(token):
		return nil, notReady("Enrollment %s does not exist or has another token: it can still be created, restored or moved here; if its Secret was deleted, power the host off", name)
	case !v.opts.Now().Before(enrollment.Expires):
		return nil, unauthorized("the enrollment token has expired: create another Enrollment")
	}
	return enrollment, nil
}

// waitForAdmission returns the record of an admitted host. If the host is not admitted yet, it records the request once
// and waits for the decision.
func (v *view) waitForAdmission(ctx context.Context, enrollment Enrollment, request admissionRequest) (*Record, error) {
	changed := v.changes.subscribe()
	defer changed.cancel()
	changed.add(object{enrollment: enrollment.NamespacedName})
	changed.add(object{record: request.config})
	record, refused, err := v.findAdmitted(ctx, enrollment, request)
	if record != nil || err != nil {
		return record, err
	}
	since, err := v.recording.recordAdmissionRequest(ctx, enrollment, request)
	if errors.Is(err, ErrEnrollmentFull) {
		return nil, enrollmentFull(enrollment)
	}
	if err != nil {
		v.opts.Metrics.recordErrors.Inc()
		return nil, unavailable(fmt.Errorf("recording the request of a host in Enrollment %s: %w", enrollment.NamespacedName, err))
	}
	for refused == nil {
		if refused, err = v.findRefusal(ctx, enrollment, request, since); refused != nil || err != nil {
			break
		}
		select {
		case <-changed.changed:
			if record, refused, err = v.findAdmitted(ctx, enrollment, request); record != nil || err != nil {
				return record, err
			}
		case <-ctx.Done():
			refused = notReady("the manager has not decided yet whether this host is admitted. Try again")
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, refused
}

// enrollmentFull returns the refusal for a host whose request can't be recorded.
func enrollmentFull(enrollment Enrollment) *refusal {
	return newRefusal(http.StatusServiceUnavailable, "EnrollmentFull", "Enrollment %s has %d requests of hosts that are not admitted, "+
		"which is the maximum: see its status.requests. Increase its spec.maxUses, or create another one. A request is removed when "+
		"its host is admitted, or sent no request for 10 minutes", enrollment.NamespacedName, poolv1.MaxEnrollmentRequests)
}

// findAdmitted returns the record of an admitted host, or the refusal of a host that can never be admitted.
func (v *view) findAdmitted(ctx context.Context, enrollment Enrollment, request admissionRequest) (*Record, *refusal, error) {
	record, err := v.Records.Get(ctx, request.config)
	if err != nil {
		return nil, nil, unavailable(fmt.Errorf("finding PoolbootConfig %s: %w", request.config, err))
	}
	if record == nil || record.PointerID != request.pointerID {
		return nil, nil, nil
	}
	switch refused := record.checkAdmission(&enrollment); {
	case refused != nil && refused.code == http.StatusUnauthorized:
		return nil, refused, nil
	case refused != nil:
		return nil, nil, refused
	case record.EnrolledFrom == request.address:
		return record, nil, nil
	}
	return nil, nil, nil
}

// checkAdmission returns why the record of a host that enrolled is not valid for the Enrollment's token, or nil if it
// is.
func (r *Record) checkAdmission(enrollment *Enrollment) *refusal {
	switch {
	case r.Token.IsStateUnknown():
		return stateUnknown(r)
	case !r.Token.IsRevoked() && !r.Token.IsBoundTo(enrollment.TokenUID):
		return notReady("PoolbootConfig %s belongs to a host that enrolled with the token of an earlier Secret of Enrollment %s: it can still be restored or moved here; "+
			"to reinstall the host, delete its Node and its PoolbootConfig", r.NamespacedName, enrollment.Name)
	case !r.Token.IsAccepted() || r.Token.Hash != enrollment.TokenSHA256:
		return unauthorized("the host with this name has joined, or enrolled with another token: to reinstall it, delete its Node and its PoolbootConfig")
	}
	return nil
}

// findRefusal returns why a host is not admitted, or nil while the manager has not decided about its request.
func (v *view) findRefusal(ctx context.Context, enrollment Enrollment, request admissionRequest, since time.Time) (*refusal, error) {
	current, err := v.Enrollments.Get(ctx, enrollment.NamespacedName)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding Enrollment %s: %w", enrollment.NamespacedName, err))
	}
	if current == nil {
		return nil, nil
	}
	last := current.Requests[request.config.Name]
	if last.Refused != "" && last.Address == request.address && !last.Time.Before(since) {
		return notReady("not admitted: %s", last.Refused), nil
	}
	return nil, nil
}

// authenticateEnrolled checks that the token is the one with which the record's host was admitted, and that it is
// valid.
func (v *view) authenticateEnrolled(ctx context.Context, record *Record, token string) (*Record, error) {
	enrollment, err := v.authenticateEnrollment(ctx, types.NamespacedName{Namespace: record.Namespace, Name: record.Enrollment}, token)
	if err != nil {
		return nil, err
	}
	if refused := record.checkAdmission(enrollment); refused != nil {
		return nil, refused
	}
	if record.PointerID != access.PointerID(record.Namespace, record.Enrollment, record.Name) {
		return nil, notReady("PoolbootConfig %s does not belong to a host that enrolled: use the URL in the host's user data", record.NamespacedName)
	}
	endTurn(ctx)
	return record, nil
}

// recordAdmissionRequest records that a host requests to be admitted, unless that was recorded, or refused, moments
// ago. It returns the time of the request on which the manager decides.
func (r *recording) recordAdmissionRequest(ctx context.Context, enrollment Enrollment, request admissionRequest) (time.Time, error) {
	now := r.now()
	last, ok := enrollment.Requests[request.config.Name]
	if !ok && len(enrollment.Requests) >= poolv1.MaxEnrollmentRequests {
		return time.Time{}, ErrEnrollmentFull
	}
	// By name, regardless of the address: a client with the token can use many addresses.
	if ok {
		interval := requestInterval
		if last.Refused != "" {
			interval = refusedInterval
		}
		if now.Sub(last.Time).Abs() < interval {
			return last.Time, nil
		}
	}
	key, since := types.UID("asks/"+request.pointerID), now.Truncate(time.Microsecond)
	claimed := r.claimWrite(r.requested, key, since, func(last any) bool {
		recent := now.Sub(last.(time.Time)).Abs() < requestInterval
		if recent {
			since = last.(time.Time)
		}
		return recent
	})
	if !claimed {
		return since, nil
	}
	err := r.write(ctx, func(ctx context.Context) error {
		return r.admissions.RecordAdmissionRequest(ctx, enrollment, request.config.Name, request.address, since)
	})
	if err != nil {
		r.requested.Remove(key)
	}
	return since, err
}
