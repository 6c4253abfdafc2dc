package boot

import (
	"errors"
	"fmt"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
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
	var known *failure
	if errors.As(err, &known) {
		return &failure{reason: known.reason, err: err, waits: known.waits, retry: known.retry}
	}
	for _, kind := range []struct {
		is     bool
		reason string
	}{
		{is: is[*host.NotReadyError](err), reason: bootstrapv1.HostNotReadyReason},
		{is: is[*pool.NotFoundError](err), reason: bootstrapv1.PoolNotFoundReason},
		{is: is[*pool.UnselectedError](err), reason: bootstrapv1.PoolNotFoundReason},
		{is: is[*pool.ConflictError](err), reason: bootstrapv1.PoolConflictReason},
		{is: is[*pool.DuplicateError](err), reason: bootstrapv1.PoolConflictReason},
		{is: is[*pool.NotRegistrableError](err), reason: bootstrapv1.PoolNotRegistrableReason},
		{is: is[*pool.SelectorError](err), reason: bootstrapv1.PoolNotRegistrableReason},
		{is: is[*pool.ControlPlaneError](err), reason: bootstrapv1.ControlPlaneNotSupportedReason},
		{is: is[*identity.NameError](err), reason: bootstrapv1.NodeNameReservedReason},
		{is: is[*registration.ConflictError](err), reason: bootstrapv1.LabelConflictReason},
		{is: is[*registration.OutsidePoolError](err), reason: bootstrapv1.LabelConflictReason},
		{is: is[*join.ExtraConfigError](err), reason: bootstrapv1.ExtraConfigInvalidReason},
	} {
		if kind.is {
			return &failure{reason: kind.reason, err: err, waits: outlook.Of(kind.reason) == outlook.Waits}
		}
	}
	return &failure{reason: bootstrapv1.BootFailedReason, err: err}
}

func is[kind error](err error) bool {
	_, found := errors.AsType[kind](err)
	return found
}
