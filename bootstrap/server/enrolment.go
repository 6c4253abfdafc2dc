package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
		name: to.name, address: addressOf(r).String(), tokenSHA256: enrol.Hash(token),
		pointerID: enrol.PointerID(enrolment.Namespace, enrolment.Name, to.name),
	}
	record, err := v.waitForAdmission(ctx, *enrolment, asks, token)
	if err != nil {
		return err
	}
	w.config = record.NamespacedName
	to.pointerID = asks.pointerID
	return v.serveConfig(ctx, w, r, record, to, token)
}

// asking is a host that wants to be admitted.
type asking struct{ name, address, tokenSHA256, pointerID string }

// enrolmentFor finds the enrolment that a token belongs to, and makes sure that it admits what is asked for.
func (v *view) enrolmentFor(ctx context.Context, token string, to route) (*Enrolment, error) {
	if token == "" {
		return nil, unauthorized("a bearer token is needed: the enrolment token")
	}
	found, err := v.Enrolments.ByTokenSHA256(ctx, enrol.Hash(token))
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding the enrolment of a token: %w", err))
	}
	if len(found) == 0 {
		return nil, notReady("no enrolment has this token: it may still be made, restored or moved here; if its Secret was deleted, power the host off")
	}
	for i := range found {
		if found[i].Role != to.role {
			continue
		}
		if !v.opts.Now().Before(found[i].Expires) {
			return nil, unauthorized("the enrolment token has expired: make a new one")
		}
		if why := enrol.Allows(found[i].Names, to.name); why != "" {
			return nil, &refusal{code: http.StatusForbidden, Word: "Forbidden", Message: fmt.Sprintf("the name in ?name= may not be taken: %s", why)}
		}
		showedToken(ctx)
		return &found[i], nil
	}
	return nil, unauthorized("the enrolment token is for another pool")
}

// waitForAdmission returns the record of a host that is admitted. When it is not, it asks for it, once, and waits until
// that is decided.
func (v *view) waitForAdmission(ctx context.Context, enrolment Enrolment, asks asking, token string) (*Record, error) {
	changed := v.changes.subscribe()
	defer changed.end()
	changed.to(object{enrolment: enrolment.NamespacedName})
	changed.to(object{pointer: asks.pointerID})
	record, refused, err := v.lookForRecord(ctx, asks, token)
	if record != nil || err != nil {
		return record, err
	}
	since, err := v.recording.ask(ctx, enrolment, asks)
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
			if record, refused, err = v.lookForRecord(ctx, asks, token); record != nil || err != nil {
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

// lookForRecord returns the record of a host that is admitted, or the refusal of one that can never be.
func (v *view) lookForRecord(ctx context.Context, asks asking, token string) (*Record, *refusal, error) {
	records, err := v.Records.ByPointerID(ctx, asks.pointerID)
	if err != nil {
		return nil, nil, unavailable(fmt.Errorf("finding the PoolbootConfig of pointer %s: %w", asks.pointerID, err))
	}
	for i := range records {
		switch {
		case !records[i].accepts(token):
			return nil, unauthorized("the host of this name has joined, or came with another token: " +
				"to install it anew, delete its Node and its PoolbootConfig"), nil
		case records[i].EnrolledFrom == asks.address:
			return &records[i], nil, nil
		}
	}
	return nil, nil, nil
}

// lookForRefusal returns why a host is not admitted; nil while that is not decided for what it asked since.
func (v *view) lookForRefusal(ctx context.Context, enrolment Enrolment, asks asking, since time.Time) (*refusal, error) {
	current, err := v.Enrolments.ByTokenSHA256(ctx, asks.tokenSHA256)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding Enrolment %s: %w", enrolment.NamespacedName, err))
	}
	for i := range current {
		last := current[i].Requests[asks.name]
		if current[i].NamespacedName == enrolment.NamespacedName && last.Refused != "" && last.Address == asks.address && !last.Time.Before(since) {
			return notReady("not admitted: %s", last.Refused), nil
		}
	}
	return nil, nil
}

// enrolmentStands makes sure that the enrolment by which a host was admitted is still good: its token is the host's.
func (v *view) enrolmentStands(ctx context.Context, record *Record) error {
	found, err := v.Enrolments.ByTokenSHA256(ctx, record.TokenSHA256)
	if err != nil {
		return unavailable(fmt.Errorf("finding Enrolment %s/%s: %w", record.Namespace, record.Enrolment, err))
	}
	for i := range found {
		if found[i].NamespacedName != (types.NamespacedName{Namespace: record.Namespace, Name: record.Enrolment}) {
			continue
		}
		if !v.opts.Now().Before(found[i].Expires) {
			return unauthorized("the enrolment token has expired: make a new one")
		}
		return nil
	}
	return notReady("the enrolment of this host is not there: it may still be restored or moved here")
}

// ask records that a host wants to be admitted, unless that was recorded moments ago or it was told no just now. It returns
// the time of the request that is decided on.
func (r *recording) ask(ctx context.Context, enrolment Enrolment, asks asking) (time.Time, error) {
	now := r.now()
	if last, known := enrolment.Requests[asks.name]; known && last.Address == asks.address {
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
		return r.admissions.Asked(ctx, enrolment, asks.name, asks.address, asks.tokenSHA256, since)
	})
	if err != nil {
		r.requested.Remove(key)
	}
	return since, err
}
