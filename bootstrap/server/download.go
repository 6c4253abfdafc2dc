package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// serveRendered answers a host that downloads its pool's configuration: the very one that its overlay names, and no other.
//
// The answer to /config may have come from another replica that saw a change first, so what does not fit yet is waited
// for before it is refused.
func (s *Server) serveRendered(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record, to route) error {
	pool, err := s.waitForRendered(ctx, record, types.NamespacedName{Namespace: to.namespace, Name: to.name}, to.version)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = typeGzip
	h["Cache-Control"] = keptForEver
	h["Etag"] = pool.etag
	if known := r.Header.Get("If-None-Match"); known != "" && (known == "*" || strings.Contains(known, pool.etag[0])) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	// Always all of it: a host verifies the whole, and Ignition asks for no part.
	h["Content-Length"] = pool.length
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, err = w.Write(pool.gzip)
	return err
}

func (s *Server) waitForRendered(ctx context.Context, record *Record, name types.NamespacedName, version string) (*PoolBytes, error) {
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
			return nil, missing(name)
		}
	}
}

// Why a machine does not get a rendered config, if nothing changes.
func noOverlay(types.NamespacedName) *refusal {
	return notReady("the machine's overlay is not made: ask for its configuration first")
}

func notThere(name types.NamespacedName) *refusal {
	return notReady("rendered MachineConfig %s is not there yet. Try again", name)
}

func notAllowed(name types.NamespacedName) *refusal {
	return &refusal{
		code: http.StatusForbidden, Word: "Forbidden",
		Message: fmt.Sprintf("rendered MachineConfig %s is not the one that this machine is to boot with: start again from the URL in its user data", name),
	}
}

// lookForAllowed returns the bytes of a rendered config if the machine's overlay names it, or what makes the refusal that is due
// if nothing changes.
func (s *Server) lookForAllowed(ctx context.Context, record *Record, name types.NamespacedName, version string, changed *subscription) (pool *PoolBytes, missing func(types.NamespacedName) *refusal, err error) {
	changed.to(object{overlay: record.UID})
	overlay, err := s.opts.Overlays.Get(ctx, record.UID)
	if err != nil {
		return nil, nil, unavailable(fmt.Errorf("finding the overlay of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	if overlay == nil {
		return nil, noOverlay, nil
	}
	if name.Namespace != record.Namespace || name.Name != overlay.Configuration {
		return nil, notAllowed, nil
	}
	pool, err = s.lookForRendered(ctx, name, version, changed)
	return pool, notThere, err
}
