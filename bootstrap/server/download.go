package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

// serveRendered answers a host that downloads its pool's configuration. It serves only the rendered config that the
// machine's overlay names.
//
// The answer to /config can have come from another replica that saw a change earlier. So a request that does not match
// yet waits before it is refused.
func (v *view) serveRendered(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record, target route) error {
	pool, err := v.waitForRendered(ctx, record, target, func(changed *subscription) (string, *refusal, error) {
		overlay, err := v.findOverlay(ctx, record, changed)
		if err != nil || overlay == nil {
			return "", errNoOverlay, err
		}
		return overlay.Configuration, nil, nil
	})
	v.recordAddress(ctx, record, target.from)
	if err != nil {
		return err
	}
	return writeFile(w, r, pool.file, cachePrivately)
}

// serveRenderedToAgent answers the agent of a running host, which sends the client certificate of the host's kubelet
// instead of a token. It serves only the rendered config that the host should run.
func (v *view) serveRenderedToAgent(ctx context.Context, w *answer, r *http.Request, target route) error {
	record, _, err := v.authorizeKubelet(ctx, r, target)
	if err != nil {
		return err
	}
	w.config = record.NamespacedName
	pool, err := v.waitForRendered(ctx, record, target, func(changed *subscription) (string, *refusal, error) {
		assigned, err := v.findAssigned(ctx, r, record, changed)
		if err != nil {
			return "", nil, err
		}
		return assigned.Configuration, nil, nil
	})
	if err != nil {
		return err
	}
	return writeFile(w, r, pool.file, cachePrivately)
}

// permission returns the name of the rendered config that a host may download, or the refusal while there is none. It
// adds to the subscription what it reads.
type permission func(changed *subscription) (name string, missing *refusal, err error)

// waitForRendered returns the bytes of a rendered config as soon as it exists and the host may download it.
func (v *view) waitForRendered(ctx context.Context, record *Record, target route, allowed permission) (*PoolBytes, error) {
	name := types.NamespacedName{Namespace: target.object.Namespace, Name: target.name}
	if pool, _, err := v.findAllowed(ctx, name, target.version, allowed, nil); pool != nil || err != nil {
		return pool, err
	}
	changed := v.changes.subscribe()
	defer changed.cancel()
	waitCtx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	for requested := false; ; {
		pool, missing, err := v.findAllowed(ctx, name, target.version, allowed, changed)
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

// findAllowed returns the bytes of a rendered config if the host may download it. Otherwise it returns the refusal that
// applies if this does not change in time.
func (v *view) findAllowed(
	ctx context.Context, name types.NamespacedName, version string, allowed permission, changed *subscription,
) (*PoolBytes, *refusal, error) {
	configuration, missing, err := allowed(changed)
	switch {
	case err != nil || missing != nil:
		return nil, missing, err
	case name.Name != configuration:
		return nil, forbidden("rendered MachineConfig %s is not the one for this machine: start again from the URL in its user data; an agent reads its assignment again", name), nil
	}
	pool, err := v.findRendered(ctx, name, version, changed)
	if pool != nil || err != nil {
		return pool, nil, err
	}
	return nil, notReady("rendered MachineConfig %s does not exist yet. Try again", name), nil
}
