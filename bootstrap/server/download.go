package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// serveRendered answers a host that downloads its pool's configuration. It serves only the rendered config that the
// machine's overlay names.
//
// The answer to /config can have come from another replica that saw a change earlier. So a request that does not match
// yet waits before it is refused.
func (v *view) serveRendered(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record, to route) error {
	pool, err := v.waitForRendered(ctx, record, to)
	v.recordAddress(ctx, record, to.from)
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
	// Range requests are not supported: a host verifies the whole file, and Ignition sends none.
	h["Content-Length"] = pool.length
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, err = w.Write(pool.gzip)
	return err
}

func (v *view) waitForRendered(ctx context.Context, record *Record, to route) (*PoolBytes, error) {
	name := types.NamespacedName{Namespace: to.object.Namespace, Name: to.name}
	if pool, _, err := v.lookForAllowed(ctx, record, name, to.version, nil); pool != nil || err != nil {
		return pool, err
	}
	changed := v.changes.subscribe()
	defer changed.end()
	held, release := context.WithTimeout(ctx, v.wait)
	defer release()
	for requested := false; ; {
		pool, missing, err := v.lookForAllowed(ctx, record, name, to.version, changed)
		if pool != nil || err != nil {
			return pool, err
		}
		// A host that has its configuration sends no other request. Without this record the manager would not create
		// the overlay again.
		if missing == lacksOverlay && !requested {
			if err := v.request(held, record, to.from); err != nil {
				return nil, err
			}
			requested = true
		}
		select {
		case <-changed.changed:
		case <-held.Done():
			return nil, missing.refusal(name)
		}
	}
}

// lack is what is missing before a rendered config can be served to a machine.
type lack int

const (
	lacksNothing lack = iota
	lacksOverlay
	lacksPermission
	lacksRendered
)

// refusal returns the answer to a machine if what is missing does not appear.
func (l lack) refusal(name types.NamespacedName) *refusal {
	switch l {
	case lacksOverlay:
		return notReady("the machine's overlay does not exist yet. Try again")
	case lacksPermission:
		return &refusal{
			code: http.StatusForbidden, Word: "Forbidden",
			Message: fmt.Sprintf("rendered MachineConfig %s is not the one for this machine: start again from the URL in its user data", name),
		}
	default:
		return notReady("rendered MachineConfig %s does not exist yet. Try again", name)
	}
}

// lookForAllowed returns the bytes of a rendered config if the machine's overlay names it, or what is missing.
func (v *view) lookForAllowed(ctx context.Context, record *Record, name types.NamespacedName, version string, changed *subscription) (*PoolBytes, lack, error) {
	changed.to(object{overlay: record.UID})
	overlay, err := v.Overlays.Get(ctx, record.UID)
	if err != nil {
		return nil, lacksNothing, unavailable(fmt.Errorf("finding the overlay of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	if overlay == nil {
		return nil, lacksOverlay, nil
	}
	if name.Namespace != record.Namespace || name.Name != overlay.Configuration {
		return nil, lacksPermission, nil
	}
	pool, err := v.lookForRendered(ctx, name, version, changed)
	return pool, lacksRendered, err
}
