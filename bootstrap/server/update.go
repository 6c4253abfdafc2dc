package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// serveUpdate answers the agent of a running host, which sends the client certificate of the host's kubelet: GET
// returns what the host should run, and POST requests that its Node is pre-registered before its kubelet starts.
func (v *view) serveUpdate(ctx context.Context, w *answer, r *http.Request, target route) error {
	record, assigned, err := v.authorizeKubelet(ctx, r, target)
	if err != nil {
		return err
	}
	w.config = record.NamespacedName
	if r.Method == http.MethodPost {
		return v.serveRegistration(ctx, w, r, record)
	}
	document, err := assigned.document()
	if err != nil {
		return unavailable(fmt.Errorf("the assignment of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	h := w.Header()
	h["Content-Type"] = typeJSON
	h["Cache-Control"] = noStore
	h.Set("Content-Length", strconv.Itoa(len(document)))
	_, err = w.Write(document)
	return err
}

// serveRegistration records that a host requests the registration of its Node, and waits until the manager has seen or
// created the Node.
func (v *view) serveRegistration(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record) error {
	if r.ContentLength != 0 {
		// After the answer, net/http reads the rest of a body in chunks. This ends it.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		return newRefusal(http.StatusRequestEntityTooLarge, "BodyNotAccepted", "this path accepts no body: send Content-Length: 0")
	}
	changed := v.changes.subscribe()
	defer changed.cancel()
	changed.add(object{record: record.NamespacedName})
	ctx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	since, err := v.recording.recordRegistrationRequest(ctx, *record)
	if err != nil {
		v.opts.Metrics.recordErrors.Inc()
		return unavailable(fmt.Errorf("recording the registration request of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	for uid := record.UID; ; {
		current, err := v.Records.Get(ctx, record.NamespacedName)
		switch {
		case err != nil:
			return unavailable(fmt.Errorf("finding PoolbootConfig %s: %w", record.NamespacedName, err))
		case current == nil || current.UID != uid:
			return notReady("PoolbootConfig %s was deleted during the request. Try again", record.NamespacedName)
		case !current.RegisteredTime.Before(since):
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		select {
		case <-changed.changed:
		case <-ctx.Done():
			return notReady("the manager has not registered the Node yet. Try again")
		}
	}
}

// registration is a request for the registration of a Node that this server has recorded.
type registration struct {
	since time.Time // the recorded time
	at    time.Time // when it was recorded, by the clock of this server
}

// recordRegistrationRequest records that a host requests the registration of its Node, and returns the time of the
// request that the manager must have answered. A request that is not answered, or was answered moments ago, also counts
// for later requests, so retries cause no writes.
func (r *recording) recordRegistrationRequest(ctx context.Context, record Record) (time.Time, error) {
	now, last := r.now(), record.RegistrationRequestedTime
	interval := requestInterval
	if !last.Equal(record.RegisteredTime) {
		interval = busyInterval
	}
	recent := func(at time.Time) bool { return now.Sub(at).Abs() < interval }
	if recent(last) {
		return last, nil
	}
	claim := registration{since: now.Truncate(time.Microsecond), at: now} // as precise as the API
	for _, earlier := range []time.Time{record.RegisteredTime, last} {
		if !claim.since.After(earlier) { // the clock of another server is ahead, but this request is later
			claim.since = earlier.Add(time.Microsecond)
		}
	}
	claimed := r.claimWrite(r.registrations, record.UID, claim, func(earlier any) bool {
		if recent(earlier.(registration).at) {
			claim = earlier.(registration)
			return true
		}
		return false
	})
	if !claimed {
		return claim.since, nil
	}
	err := r.write(ctx, func(ctx context.Context) error { return r.boots.RecordRegistrationRequest(ctx, record, claim.since) })
	if err != nil {
		r.registrations.Remove(record.UID)
	}
	return claim.since, err
}
