package server

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// serveRendered answers a host that downloads its pool's configuration. It serves only the rendered config that the
// machine's overlay names.
//
// The answer to /config can have come from another replica that saw a change earlier. So a request that does not match
// yet waits before it is refused.
func (v *view) serveRendered(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record, target route) error {
	pool, err := v.waitForRendered(ctx, record, target)
	v.recordAddress(ctx, record, target.from)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = typeGzip
	h["Cache-Control"] = cachePrivately
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

// waitForRendered returns the bytes of a rendered config as soon as it exists and the machine's overlay names it.
func (v *view) waitForRendered(ctx context.Context, record *Record, target route) (*PoolBytes, error) {
	name := types.NamespacedName{Namespace: target.object.Namespace, Name: target.name}
	if pool, _, err := v.findAllowed(ctx, record, name, target.version, nil); pool != nil || err != nil {
		return pool, err
	}
	changed := v.changes.subscribe()
	defer changed.cancel()
	waitCtx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	for requested := false; ; {
		pool, missing, err := v.findAllowed(ctx, record, name, target.version, changed)
		if pool != nil || err != nil {
			return pool, err
		}
		// A host that has its configuration sends no other request. Without this record the manager would not create
		// the overlay again.
		if missing == errNoOverlay && !requested {
			if err := v.recordRequest(waitCtx, record, target.from); err != nil {
				return nil, err
			}
			requested = true
		}
		select {
		case <-changed.changed:
		case <-waitCtx.Done():
			return nil, missing
		}
	}
}

// errNoOverlay is the refusal while a machine has no overlay.
var errNoOverlay = notReady("the machine's overlay does not exist yet. Try again")

// findAllowed returns the bytes of a rendered config if the machine's overlay names it. Otherwise it returns the
// refusal that applies if this does not change in time.
func (v *view) findAllowed(
	ctx context.Context, record *Record, name types.NamespacedName, version string, changed *subscription,
) (*PoolBytes, *refusal, error) {
	overlay, err := v.findOverlay(ctx, record, changed)
	switch {
	case err != nil:
		return nil, nil, err
	case overlay == nil:
		return nil, errNoOverlay, nil
	case name.Namespace != record.Namespace || name.Name != overlay.Configuration:
		return nil, forbidden("rendered MachineConfig %s is not the one for this machine: start again from the URL in its user data", name), nil
	}
	pool, err := v.findRendered(ctx, name, version, changed)
	if pool != nil || err != nil {
		return pool, nil, err
	}
	return nil, notReady("rendered MachineConfig %s does not exist yet. Try again", name), nil
}
