package boot

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
)

// failure is why a boot is not prepared, as the condition BootPrepared reports it.
type failure struct {
	// reason is the condition's reason.
	reason string
	// err is the condition's message: the object, the field and the remedy.
	err error
	// waits is true if the cause resolves on its own. Every other failure is an error, retried with increasing delays.
	waits bool
	// retry is how soon to try again if no watch reports that the cause is resolved.
	retry time.Duration
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// fault returns a failure that a user must fix.
func fault(reason, format string, args ...any) error {
	return &failure{reason: reason, err: fmt.Errorf(format, args...)}
}

// waiting returns a failure that is not an error: no host needs its configuration yet.
func waiting(err error) *failure {
	return &failure{reason: bootstrapv1.WaitingForHostReason, err: err, waits: true}
}

// failureOf converts an error of any package to a failure with the reason that users see.
func failureOf(err error) *failure {
	if failed, ok := errors.AsType[*failure](err); ok {
		return &failure{reason: failed.reason, err: err, waits: failed.waits, retry: failed.retry}
	}
	reason := cmp.Or(outlook.ReasonOf(err), bootstrapv1.BootFailedReason)
	return &failure{reason: reason, err: err, waits: outlook.Of(reason) == outlook.Waits}
}

// is reports whether an error is, or wraps, an error of a type.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
