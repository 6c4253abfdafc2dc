package controllertest

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// InterceptWrites returns functions that call around for each write of a client. The function write does the write. The
// object is nil for server-side apply.
func InterceptWrites(around func(ctx context.Context, object client.Object, write func() error) error) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return around(ctx, o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return around(ctx, o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return around(ctx, nil, func() error { return c.Apply(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return around(ctx, o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return around(ctx, o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}

// ErrCrash is the error of each write at and after a crash.
var ErrCrash = errors.New("connection reset")

// Process is the process in which a reconciler runs. It counts writes, and can crash at one of them.
type Process struct {
	// Writes is the number of writes that the reconciler has tried.
	Writes int
	// CrashAt is the number of the write at which the process crashes, or 0 for none.
	CrashAt int
	// CrashesAt reports whether the process crashes at a write of this object. Nil means that it does not.
	CrashesAt func(client.Object) bool
	// Late is true if the write at which the process crashes takes effect.
	Late bool
	// Crashed is true after the crash, until the next process.
	Crashed bool
}

// Write does a write, or crashes. It is an argument for InterceptWrites.
func (p *Process) Write(_ context.Context, object client.Object, write func() error) error {
	p.Writes++
	if p.Crashed {
		return ErrCrash
	}
	if p.Writes != p.CrashAt && (p.CrashesAt == nil || !p.CrashesAt(object)) {
		return write()
	}
	p.Crashed = true
	if p.Late {
		_ = write()
	}
	return ErrCrash
}

// Reconcile calls a reconciler once, as a new process, and reports whether it has settled: it wrote nothing and did not
// crash.
func (p *Process) Reconcile(reconcile func() (ctrl.Result, error)) (settled bool) {
	GinkgoHelper()
	before := p.Writes
	p.Crashed = false
	_, err := reconcile()
	Expect(err).To(Or(Not(HaveOccurred()), MatchError(ErrCrash)))
	return err == nil && p.Writes == before
}

// Settle calls a reconciler, each time as a new process, until it has settled.
func (p *Process) Settle(reconcile func() (ctrl.Result, error)) {
	GinkgoHelper()
	for range 20 {
		if p.Reconcile(reconcile) {
			return
		}
	}
	Fail("the reconciler never settles")
}
