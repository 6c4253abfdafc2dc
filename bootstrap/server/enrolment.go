package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enrol"
)

// refusedInterval is how long a refusal stands before a host that goes on asking makes another write.
const refusedInterval = time.Minute

// serveEnrolled answers a host that has no Machine: it comes with an enrolment token and the name that it wants. Once it is
// admitted it is answered as any other host. Nothing is written for who has no valid token, or asks for a name that the
// token is not for.
func (v *view) serveEnrolled(ctx context.Context, w *answer, r *http.Request, to route) error {
	// One wait for both, the admission and the overlay: a host gives up after ten seconds.
	ctx, release := context.WithTimeout(ctx, v.wait)
	defer release()
	token := bearerToken(r)
	enrolment, err := v.enrolmentFor(ctx, token, to)
	if err != nil {
		return err
	}
	asks := asking{
		config: types.NamespacedName{Namespace: enrolment.Namespace, Name: to.name}, address: addressOf(r).String(),
		pointerID: enrol.PointerID(enrolment.Namespace, enrolment.Name, to.name),
	}
	record, err := v.waitForAdmission(ctx, *enrolment, asks)
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

// enrolmentFor finds the enrolment that a token belongs to, and makes sure that it admits what is asked for.
func (v *view) enrolmentFor(ctx context.Context, token string, to route) (*Enrolment, error) {
	if token == "" {
		return nil, unauthorized("a bearer token is needed: the enrolment token")
	}
	enrolment, err := v.enrolmentOf(ctx, to.object, token)
	if err != nil {
		return nil, err
	}
	if enrolment.Role != to.role {
		return nil, unauthorized("the enrolment token is for another pool")
	}
	if why := enrol.Allows(enrolment.Names, to.name); why != "" {
		return nil, &refusal{code: http.StatusForbidden, Word: "Forbidden", Message: fmt.Sprintf("the name in ?name= may not be taken: %s", why)}
	}
	showedToken(ctx)
	return enrolment, nil
}

// enrolmentOf returns the Enrolment of that name, if a token is its own and is live. Another token is 503, because the Secret may
// hold it already, which the server does not read.
func (v *view) enrolmentOf(ctx context.Context, name types.NamespacedName, token string) (*Enrolment, error) {
	enrolment, err := v.Enrolments.Get(ctx, name)
	switch {
	case err != nil:
		return nil, unavailable(fmt.Errorf("finding Enrolment %s: %w", name, err))
	case enrolment == nil || !enrolment.accepts(token):
		return nil, notReady("no enrolment %s has this token: it may still be made, restored or moved here; if its Secret was deleted, power the host off", name)
	case !v.opts.Now().Before(enrolment.Expires):
		return nil, unauthorized("the enrolment token has expired: make a new one")
	}
	return enrolment, nil
}

// waitForAdmission returns the record of a host that is admitted. When it is not, it asks for it, once, and waits until
// that is decided.
func (v *view) waitForAdmission(ctx context.Context, enrolment Enrolment, asks asking) (*Record, error) {
	changed := v.changes.subscribe()
	defer changed.end()
	changed.to(object{enrolment: enrolment.NamespacedName})
	changed.to(object{record: asks.config})
	record, refused, err := v.lookForRecord(ctx, enrolment, asks)
	if record != nil || err != nil {
		return record, err
	}
	since, err := v.recording.ask(ctx, enrolment, asks)
	if errors.Is(err, ErrEnrolmentFull) {
		return nil, enrolmentFull(enrolment)
	}
	if err != nil {
		v.opts.Metrics.recordErrors.Inc()
		return nil, unavailable(fmt.Errorf("recording that a host asks to be admitted by Enrolment %s: %w", enrolment.NamespacedName, err))
	}
	for refused == nil {
		if refused, err = v.lookForRefusal(ctx, enrolment, asks, since); refused != nil || err != nil {
			break
		}
		select {
		case <-changed.changed:
			if record, refused, err = v.lookForRecord(ctx, enrolment, asks); record != nil || err != nil {
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

// enrolmentFull is the refusal of a host that can't even be noted as one that asks.
func enrolmentFull(enrolment Enrolment) *refusal {
	return &refusal{code: http.StatusServiceUnavailable, Word: "EnrolmentFull", Message: fmt.Sprintf(
		"%d hosts asked by Enrolment %s and are not admitted, and it takes no more requests: see its status.requests. Raise data.uses of its Secret, or make "+
			"another token. A request is dropped when its host is admitted, or has not asked for 10 minutes", poolv1.MaxEnrolmentRequests, enrolment.NamespacedName)}
}

// lookForRecord returns the record of a host that is admitted, or the refusal of one that can never be.
func (v *view) lookForRecord(ctx context.Context, enrolment Enrolment, asks asking) (*Record, *refusal, error) {
	record, err := v.Records.Get(ctx, asks.config)
	if err != nil {
		return nil, nil, unavailable(fmt.Errorf("finding PoolbootConfig %s: %w", asks.config, err))
	}
	if record == nil || record.PointerID != asks.pointerID {
		return nil, nil, nil
	}
	switch why := record.notAdmittedBy(&enrolment); {
	case why != nil && why.code == http.StatusUnauthorized:
		return nil, why, nil
	case why != nil:
		return nil, nil, why
	case record.EnrolledFrom == asks.address:
		return record, nil, nil
	}
	return nil, nil, nil
}

// notAdmittedBy says why the record of a host that enrolled is not good for who has the Enrolment's token; nil when it is.
func (r *Record) notAdmittedBy(enrolment *Enrolment) *refusal {
	switch {
	case r.TokenSHA256 != bootstrapv1.TokenRevoked && r.TokenUID != enrolment.TokenUID:
		return notReady("PoolbootConfig %s is that of a host which came with the token of an earlier Secret %s: it may still be restored or moved here; "+
			"to install the host anew, delete its Node and its PoolbootConfig", r.NamespacedName, enrolment.Name)
	case r.TokenSHA256 != enrolment.TokenSHA256:
		return unauthorized("the host of this name has joined, or came with another token: to install it anew, delete its Node and its PoolbootConfig")
	}
	return nil
}

// lookForRefusal returns why a host is not admitted; nil while that is not decided for what it asked since.
func (v *view) lookForRefusal(ctx context.Context, enrolment Enrolment, asks asking, since time.Time) (*refusal, error) {
	current, err := v.Enrolments.Get(ctx, enrolment.NamespacedName)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding Enrolment %s: %w", enrolment.NamespacedName, err))
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
	enrolment, err := v.enrolmentOf(ctx, types.NamespacedName{Namespace: record.Namespace, Name: record.Enrolment}, token)
	if err != nil {
		return nil, err
	}
	if why := record.notAdmittedBy(enrolment); why != nil {
		return nil, why
	}
	if record.PointerID != enrol.PointerID(record.Namespace, record.Enrolment, record.Name) {
		return nil, notReady("PoolbootConfig %s is not the record of a host that enrolled", record.NamespacedName)
	}
	showedToken(ctx)
	return record, nil
}

// ask records that a host wants to be admitted, unless that was recorded moments ago or it was told no just now. It returns
// the time of the request that is decided on.
func (r *recording) ask(ctx context.Context, enrolment Enrolment, asks asking) (time.Time, error) {
	now := r.now()
	last, known := enrolment.Requests[asks.config.Name]
	if !known && len(enrolment.Requests) >= poolv1.MaxEnrolmentRequests {
		return time.Time{}, ErrEnrolmentFull
	}
	if known && last.Address == asks.address {
		stands := requestInterval
		if last.Refused != "" {
			stands = refusedInterval
		}
		if now.Sub(last.Time).Abs() < stands {
			return last.Time, nil
		}
	}
	key, since := types.UID("asks/"+asks.pointerID+"/"+asks.address), now.Truncate(time.Microsecond)
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
		return r.admissions.Asked(ctx, enrolment, asks.config.Name, asks.address, since)
	})
	if err != nil {
		r.requested.Remove(key)
	}
	return since, err
}
