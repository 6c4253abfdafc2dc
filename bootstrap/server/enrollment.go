package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
)

// refusedInterval is how long a refusal stands before a host that goes on asking makes another write.
const refusedInterval = time.Minute

// serveEnrolled answers a host that has no Machine: it comes with an enrollment token and the name that it wants. Once
// it is admitted it is answered as any other host. Nothing is written for who has no valid token, or asks for a name
// that the token is not for.
func (v *view) serveEnrolled(ctx context.Context, w *answer, r *http.Request, to route) error {
	// One wait for both, the admission and the overlay: a host gives up after ten seconds.
	ctx, release := context.WithTimeout(ctx, v.wait)
	defer release()
	token := bearerToken(r)
	enrollment, err := v.enrollmentFor(ctx, token, to)
	if err != nil {
		return err
	}
	asks := asking{
		config: types.NamespacedName{Namespace: enrollment.Namespace, Name: to.name}, address: addressOf(r).String(),
		pointerID: enroll.PointerID(enrollment.Namespace, enrollment.Name, to.name),
	}
	record, err := v.waitForAdmission(ctx, *enrollment, asks)
	if err != nil {
		return err
	}
	w.config = record.NamespacedName
	return v.serveConfig(ctx, w, r, record, to, token)
}

// asking is a host that wants to be admitted.
type asking struct {
	// config is what the host's PoolbootConfig is called, once it is admitted, and its Node.
	config             types.NamespacedName
	address, pointerID string
}

// enrollmentFor finds the enrollment that a token belongs to, and makes sure that it admits the requested name.
func (v *view) enrollmentFor(ctx context.Context, token string, to route) (*Enrollment, error) {
	if token == "" {
		return nil, unauthorized("a bearer token is needed: the enrollment token")
	}
	enrollment, err := v.enrollmentOf(ctx, to.object, token)
	if err != nil {
		return nil, err
	}
	if enrollment.Role != to.role {
		return nil, unauthorized("the enrollment token is for another pool")
	}
	if why := enroll.Allows(enrollment.Names, to.name); why != "" {
		return nil, &refusal{code: http.StatusForbidden, Word: "Forbidden", Message: fmt.Sprintf("the name in ?name= may not be taken: %s", why)}
	}
	showedToken(ctx)
	return enrollment, nil
}

// enrollmentOf returns the Enrollment of that name, if a token is its own and is live. Another token is 503, because
// the Secret may hold it already, which the server does not read.
func (v *view) enrollmentOf(ctx context.Context, name types.NamespacedName, token string) (*Enrollment, error) {
	enrollment, err := v.Enrollments.Get(ctx, name)
	switch {
	case err != nil:
		return nil, unavailable(fmt.Errorf("finding Enrollment %s: %w", name, err))
	case enrollment == nil || !enrollment.accepts(token):
		return nil, notReady("no enrollment %s has this token: it may still be made, restored or moved here; if its Secret was deleted, power the host off", name)
	case !v.opts.Now().Before(enrollment.Expires):
		return nil, unauthorized("the enrollment token has expired: create another Enrollment")
	}
	return enrollment, nil
}

// waitForAdmission returns the record of a host that is admitted. When it is not, it asks for it, once, and waits until
// that is decided.
func (v *view) waitForAdmission(ctx context.Context, enrollment Enrollment, asks asking) (*Record, error) {
	changed := v.changes.subscribe()
	defer changed.end()
	changed.to(object{enrollment: enrollment.NamespacedName})
	changed.to(object{record: asks.config})
	record, refused, err := v.lookForRecord(ctx, enrollment, asks)
	if record != nil || err != nil {
		return record, err
	}
	since, err := v.recording.ask(ctx, enrollment, asks)
	if errors.Is(err, ErrEnrollmentFull) {
		return nil, enrollmentFull(enrollment)
	}
	if err != nil {
		v.opts.Metrics.recordErrors.Inc()
		return nil, unavailable(fmt.Errorf("recording that a host asks to be admitted by Enrollment %s: %w", enrollment.NamespacedName, err))
	}
	for refused == nil {
		if refused, err = v.lookForRefusal(ctx, enrollment, asks, since); refused != nil || err != nil {
			break
		}
		select {
		case <-changed.changed:
			if record, refused, err = v.lookForRecord(ctx, enrollment, asks); record != nil || err != nil {
				return record, err
			}
		case <-ctx.Done():
			refused = notReady("it is not decided yet whether this host is admitted. Try again")
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, refused
}

// enrollmentFull is the refusal of a host that can't even be noted as one that asks.
func enrollmentFull(enrollment Enrollment) *refusal {
	return &refusal{code: http.StatusServiceUnavailable, Word: "EnrollmentFull", Message: fmt.Sprintf(
		"%d hosts asked by Enrollment %s and are not admitted, and it takes no more requests: see its status.requests. Raise its spec.maxUses, or create "+
			"another one. A request is dropped when its host is admitted, or has not asked for 10 minutes", poolv1.MaxEnrollmentRequests, enrollment.NamespacedName)}
}

// lookForRecord returns the record of a host that is admitted, or the refusal of one that can never be.
func (v *view) lookForRecord(ctx context.Context, enrollment Enrollment, asks asking) (*Record, *refusal, error) {
	record, err := v.Records.Get(ctx, asks.config)
	if err != nil {
		return nil, nil, unavailable(fmt.Errorf("finding PoolbootConfig %s: %w", asks.config, err))
	}
	if record == nil || record.PointerID != asks.pointerID {
		return nil, nil, nil
	}
	switch why := record.notAdmittedBy(&enrollment); {
	case why != nil && why.code == http.StatusUnauthorized:
		return nil, why, nil
	case why != nil:
		return nil, nil, why
	case record.EnrolledFrom == asks.address:
		return record, nil, nil
	}
	return nil, nil, nil
}

// notAdmittedBy says why the record of a host that enrolled is not good for who has the Enrollment's token; nil when it
// is.
func (r *Record) notAdmittedBy(enrollment *Enrollment) *refusal {
	switch {
	case r.Token.IsStateUnknown():
		return stateUnknown(r)
	case !r.Token.IsRevoked() && !r.Token.IsBoundTo(enrollment.TokenUID):
		return notReady("PoolbootConfig %s is that of a host which came with the token of an earlier Secret %s: it may still be restored or moved here; "+
			"to reinstall the host, delete its Node and its PoolbootConfig", r.NamespacedName, enrollment.Name)
	case !r.Token.IsAccepted() || r.Token.Hash != enrollment.TokenSHA256:
		return unauthorized("the host of this name has joined, or came with another token: to install it anew, delete its Node and its PoolbootConfig")
	}
	return nil
}

// lookForRefusal returns why a host is not admitted; nil while that is not decided for what it asked since.
func (v *view) lookForRefusal(ctx context.Context, enrollment Enrollment, asks asking, since time.Time) (*refusal, error) {
	current, err := v.Enrollments.Get(ctx, enrollment.NamespacedName)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding Enrollment %s: %w", enrollment.NamespacedName, err))
	}
	if current == nil {
		return nil, nil
	}
	last := current.Requests[asks.config.Name]
	if last.Refused != "" && last.Address == asks.address && !last.Time.Before(since) {
		return notReady("not admitted: %s", last.Refused), nil
	}
	return nil, nil
}

// authenticateEnrolled makes sure that the token is the one by which the record's host was admitted, and is still good.
func (v *view) authenticateEnrolled(ctx context.Context, record *Record, token string) (*Record, error) {
	enrollment, err := v.enrollmentOf(ctx, types.NamespacedName{Namespace: record.Namespace, Name: record.Enrollment}, token)
	if err != nil {
		return nil, err
	}
	if why := record.notAdmittedBy(enrollment); why != nil {
		return nil, why
	}
	if record.PointerID != enroll.PointerID(record.Namespace, record.Enrollment, record.Name) {
		return nil, notReady("PoolbootConfig %s is not the record of a host that enrolled", record.NamespacedName)
	}
	showedToken(ctx)
	return record, nil
}

// ask records that a host wants to be admitted, unless that was recorded moments ago or it was told no just now. It
// returns the time of the request that is decided on.
func (r *recording) ask(ctx context.Context, enrollment Enrollment, asks asking) (time.Time, error) {
	now := r.now()
	last, known := enrollment.Requests[asks.config.Name]
	if !known && len(enrollment.Requests) >= poolv1.MaxEnrollmentRequests {
		return time.Time{}, ErrEnrollmentFull
	}
	// By name, whatever the address: an address costs who has the token nothing.
	if known {
		stands := requestInterval
		if last.Refused != "" {
			stands = refusedInterval
		}
		if now.Sub(last.Time).Abs() < stands {
			return last.Time, nil
		}
	}
	key, since := types.UID("asks/"+asks.pointerID), now.Truncate(time.Microsecond)
	claimed := r.claim(r.requested, key, since, func(last any) bool {
		at := last.(time.Time)
		if stands := now.Sub(at).Abs() < requestInterval; !stands {
			return false
		}
		since = at
		return true
	})
	if !claimed {
		return since, nil
	}
	err := r.write(ctx, func(ctx context.Context) error {
		return r.admissions.Asked(ctx, enrollment, asks.config.Name, asks.address, since)
	})
	if err != nil {
		r.requested.Remove(key)
	}
	return since, err
}
