// Package manager runs controller-runtime managers in tests.
package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// startTimeout is the time in which a manager must start.
const startTimeout = 2 * time.Minute

// CacheSyncTimeout is the time in which the caches of a controller must be filled. On a small machine, an API server
// with thousands of objects takes minutes while other controllers write.
const CacheSyncTimeout = 10 * time.Minute

// GracefulShutdownTimeout is the time in which the last reconciles must end. Some wait for API servers that do not
// answer any more, on a small machine with many others.
const GracefulShutdownTimeout = 3 * time.Minute

// Running is a manager that runs until Stop, or until its context is canceled.
type Running struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when the manager has returned
	err    error         // the manager's error; only valid after ended is closed
}

// Start starts a manager and waits until it reconciles. The manager must not need leader election.
func Start(ctx context.Context, mgr ctrl.Manager) (*Running, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = mgr.Start(ctx)
	}()
	select {
	case <-mgr.Elected():
	case <-time.After(startTimeout):
		return nil, errors.Join(errors.New("the manager did not start in time"), r.Stop())
	case <-r.ended:
		cancel()
		return nil, fmt.Errorf("the manager stopped while it was starting: %w", r.err)
	}
	synced := make(chan bool, 1)
	go func() { synced <- mgr.GetCache().WaitForCacheSync(ctx) }()
	select {
	case ok := <-synced:
		if ok {
			return r, nil
		}
		return nil, errors.Join(errors.New("the manager's caches did not sync"), r.Stop())
	case <-r.ended: // its controllers wait for their caches only CacheSyncTimeout
		cancel()
		return nil, fmt.Errorf("the manager stopped while its caches were filled: %w", r.err)
	}
}

// Stop stops the manager, waits for its last reconcile, and returns the manager's error. It can be called twice and on
// nil. If a reconcile does not end, it prints what all goroutines do.
func (r *Running) Stop() error {
	if r == nil {
		return nil
	}
	r.cancel()
	<-r.ended
	if errors.Is(r.err, context.DeadlineExceeded) {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	return r.err
}
