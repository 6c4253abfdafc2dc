package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// minCredentialLife is the minimum remaining lifetime of the join credential in an overlay that is served: the host
// must download its configuration, write its files, boot and start its kubelet in that time.
const minCredentialLife = 3 * time.Minute

// boot is the complete set of parts of a host's configuration. It is empty while any part is missing.
type boot struct {
	record  *Record
	overlay *Overlay
	pool    *PoolBytes
}

// serveConfig answers a host that requests its configuration: immediately if the configuration is complete, otherwise
// as soon as it is, and with 503 after the maximum wait.
func (v *view) serveConfig(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record, target route, token string) error {
	ready, err := v.waitForBoot(ctx, record, target)
	if err != nil {
		return err
	}
	v.recordAddress(ctx, ready.record, target.from)
	overlay, err := ready.overlay.Packed.ForVersion(target.version)
	if err != nil {
		return v.malformedOverlay(record, err)
	}
	poolURL := ready.pool.inline
	if poolURL == "" {
		poolURL = v.renderedURL(record, ready.overlay.Configuration)
	}
	body := ignition.Boot{
		Version:    target.version,
		PoolURL:    poolURL,
		PoolSHA512: ready.pool.sha512,
		Token:      token,
		// An enrollment token, which many hosts share and which is not revoked when they join, is not left on a host.
		ReportsJoin: record.Enrollment == "",
		Overlay:     overlay,
	}.Marshal()
	h := w.Header()
	h["Content-Type"] = typeIgnition
	h["Cache-Control"] = noStore
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err // the connection is closed, and the host retries
	}
	if r.Method == http.MethodGet && !ready.record.isServed() {
		v.recordServed(ctx, ready.record, ready.overlay)
	}
	return nil
}

// recordServed records in the background that an overlay was served.
func (s *Server) recordServed(ctx context.Context, record *Record, overlay *Overlay) {
	s.writes.Go(func() {
		if err := s.recording.recordServed(context.WithoutCancel(ctx), *record, overlay); err != nil {
			s.opts.Metrics.recordErrors.Inc()
			s.opts.Log.Error(err, "Could not record that the configuration was served", "PoolbootConfig", record.NamespacedName)
		}
	})
}

// malformedOverlay returns the refusal for a host whose overlay can't be encoded for it.
func (s *Server) malformedOverlay(record *Record, err error) *refusal {
	if older := (*ignition.VersionError)(nil); errors.As(err, &older) {
		return s.refuseTooOld("the overlay of PoolbootConfig "+record.String(), older)
	}
	return unavailable(fmt.Errorf("the overlay of PoolbootConfig %s is malformed: %w. Delete its Secret; the manager creates it again", record.NamespacedName, err))
}

// waitForBoot returns the configuration of a machine. If it is not complete, it records the request once and waits.
func (v *view) waitForBoot(ctx context.Context, record *Record, target route) (boot, error) {
	if ready, _, err := v.findBoot(ctx, record, target.version, nil); ready.pool != nil || err != nil {
		return ready, err
	}
	changed := v.changes.subscribe()
	defer changed.cancel()
	changed.add(object{record: record.NamespacedName})
	find := func() (ready boot, missing string, err error) {
		current, err := v.currentRecord(ctx, record)
		if err != nil {
			return boot{}, "", err
		}
		record = current
		return v.findBoot(ctx, record, target.version, changed)
	}
	ready, missing, err := find()
	if ready.pool != nil || err != nil {
		return ready, err
	}
	start, result := time.Now(), waitTimeout
	v.opts.Metrics.waiting.Inc()
	defer func() {
		v.opts.Metrics.waiting.Dec()
		v.opts.Metrics.waitSeconds.WithLabelValues(result).Observe(time.Since(start).Seconds())
	}()
	waitCtx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	if err := v.recordRequest(waitCtx, record, target.from); err != nil {
		result = waitError
		return boot{}, err
	}
	for {
		select {
		case <-changed.changed:
			ready, missing, err = find()
			switch {
			case err != nil:
				result = waitError
				return boot{}, err
			case ready.pool != nil:
				result = waitServed
				return ready, nil
			}
		case <-waitCtx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				result = waitCanceled
			}
			if record.Pending != "" {
				missing += "; " + record.Pending
			}
			return boot{}, notReady("not ready yet: %s. Try again", missing)
		}
	}
}

// recordRequest records that a host requested a configuration that is not complete, and its address.
func (s *Server) recordRequest(ctx context.Context, record *Record, from netip.Addr) error {
	if err := s.recording.recordRequest(ctx, *record, from); err != nil {
		s.opts.Metrics.recordErrors.Inc()
		return unavailable(fmt.Errorf("recording the boot request of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	s.recordAddress(ctx, record, from)
	return nil
}

// currentRecord returns a host's current record. If it was deleted or has another token, the host gets 503; the answer
// to its next request depends on the new state.
func (v *view) currentRecord(ctx context.Context, record *Record) (*Record, error) {
	current, err := v.Records.Get(ctx, record.NamespacedName)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	if current != nil && current.UID == record.UID && current.PointerID == record.PointerID && current.HasSameToken(record) {
		return current, nil
	}
	return nil, notReady("PoolbootConfig %s was deleted, or its token changed, during the request. Try again", record.NamespacedName)
}

// findBoot returns the configuration of a machine, or what is missing. With a subscription, it subscribes to all
// objects that it reads.
func (v *view) findBoot(ctx context.Context, record *Record, version string, changed *subscription) (ready boot, missing string, err error) {
	overlay, err := v.findOverlay(ctx, record, changed)
	switch {
	case err != nil:
		return boot{}, "", err
	case overlay == nil:
		return boot{}, "the machine's overlay does not exist yet", nil
	case overlay.Expires.Sub(v.opts.Now()) <= minCredentialLife:
		return boot{}, "the join credential in the machine's overlay is about to expire and was not renewed yet", nil
	case overlay.AgentSHA512 != "" && !v.opts.Programs.has(overlay.AgentSHA512): // the host could not download it here
		return boot{}, "the machine's overlay names an agent that this replica does not have, as during an upgrade of Poolboot, and was not renewed yet", nil
	case overlay.CredentialID != record.CredentialID:
		return boot{}, "the join credential in the machine's overlay is not the one in status.boot", nil
	case overlay.CredentialID != "" && overlay.CredentialID == record.UsedCredential:
		return boot{}, "the join credential in the machine's overlay was already used to obtain a certificate; waiting for a new one", nil
	}
	name := types.NamespacedName{Namespace: record.Namespace, Name: overlay.Configuration}
	pool, err := v.findRendered(ctx, name, version, changed)
	if err != nil || pool == nil {
		return boot{}, fmt.Sprintf("rendered MachineConfig %s does not exist yet", name), err
	}
	return boot{record: record, overlay: overlay, pool: pool}, "", nil
}

// findOverlay returns a machine's overlay, or nil if it does not exist.
func (v *view) findOverlay(ctx context.Context, record *Record, changed *subscription) (*Overlay, error) {
	changed.add(object{overlay: record.UID})
	overlay, err := v.Overlays.Get(ctx, record.UID)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding the overlay of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	return overlay, nil
}

// findRendered returns a rendered config's bytes in a spec version, or nil if it does not exist.
func (s *Server) findRendered(ctx context.Context, name types.NamespacedName, version string, changed *subscription) (*PoolBytes, error) {
	changed.add(object{rendered: name})
	rendered, err := s.rendered.get(ctx, name, version)
	if err != nil {
		return nil, unavailable(err)
	}
	if rendered != nil && rendered.tooOld != nil {
		return nil, s.refuseTooOld("rendered MachineConfig "+name.String(), rendered.tooOld)
	}
	return rendered, nil
}
