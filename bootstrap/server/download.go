package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// serveRendered answers a host that downloads its pool's configuration: the very one that its overlay names, and no other.
//
// The answer to /config may have come from another replica that saw a change first, so what does not fit yet is waited
// for before it is refused.
func (s *Server) serveRendered(ctx context.Context, w http.ResponseWriter, r *http.Request, record Record, to route) error {
	pool, err := s.waitForRendered(ctx, record, types.NamespacedName{Namespace: to.namespace, Name: to.name}, to.version)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/gzip")
	h.Set("ETag", `"`+pool.sha512+`"`)
	// Private: a MachineConfig may hold secrets, so a shared cache must not hand it on to who has no token.
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	if r.Method == http.MethodGet && whole(r) {
		h.Set("Content-Length", strconv.Itoa(len(pool.gzip)))
		_, err := w.Write(pool.gzip) // as they stand in memory: ServeContent would copy them
		return err
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(pool.gzip))
	return nil
}

// whole tells whether a request is for all of the bytes, whatever a host may have of them already: what Ignition asks.
func whole(r *http.Request) bool {
	for _, header := range []string{"Range", "If-Match", "If-None-Match"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	return true
}

func (s *Server) waitForRendered(ctx context.Context, record Record, name types.NamespacedName, version string) (*PoolBytes, error) {
	if pool, _, err := s.lookForAllowed(ctx, record, name, version, nil); pool != nil || err != nil {
		return pool, err
	}
	changed := s.changes.subscribe()
	defer changed.end()
	held, release := context.WithTimeout(ctx, s.opts.Wait)
	defer release()
	for {
		pool, missing, err := s.lookForAllowed(ctx, record, name, version, changed)
		if pool != nil || err != nil {
			return pool, err
		}
		select {
		case <-changed.changed:
		case <-held.Done():
			return nil, missing
		}
	}
}

// lookForAllowed returns the bytes of a rendered config if the machine's overlay names it, or the refusal that is due if
// nothing changes.
func (s *Server) lookForAllowed(ctx context.Context, record Record, name types.NamespacedName, version string, changed *subscription) (*PoolBytes, *refusal, error) {
	changed.to(overlayKey(record.UID))
	overlay, err := s.opts.Overlays.Get(ctx, record.UID)
	if err != nil {
		return nil, nil, unavailable(fmt.Errorf("finding the overlay of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	if overlay == nil {
		return nil, notReady("the machine's overlay is not made: ask for its configuration first"), nil
	}
	if name.Namespace != record.Namespace || name.Name != overlay.Configuration {
		return nil, &refusal{
			code: http.StatusForbidden, Word: "Forbidden",
			Message: fmt.Sprintf("rendered MachineConfig %s is not the one that this machine is to boot with: start again from the URL in its user data", name),
		}, nil
	}
	pool, err := s.lookForRendered(ctx, name, version, changed)
	return pool, notReady("rendered MachineConfig %s is not there yet. Try again", name), err
}
