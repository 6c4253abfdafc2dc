// Package manager runs controller-runtime managers beside a test: started when it returns, ended when it says so.
package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// startTimeout is how long a manager's caches may take to fill.
const startTimeout = 2 * time.Minute

// Running is a manager that runs until Stop, or until the context that it was started with ends.
type Running struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when the manager has returned
	err    error         // what it returned; read it after ended is closed
}

// Start starts a manager and returns when it reconciles. The manager must not take part in a leader election with
// others.
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
		return nil, fmt.Errorf("the manager ended while it was starting: %w", r.err)
	}
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the manager's caches did not fill"), r.Stop())
	}
	return r, nil
}

// Stop ends the manager and returns when its last reconcile has ended, with the error that ended it before, if any. It
// may be called twice and on nil.
func (r *Running) Stop() error {
	if r == nil {
		return nil
	}
	r.cancel()
	<-r.ended
	return r.err
}
