package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// state is the state of one preparation. Each phase adds what later phases need.
type state struct {
	*scope.Scope

	// pools are the pools of the cluster, with defaults. pool is the one that the Machine boots into.
	pools []poolv1.MachineConfigPool
	pool  poolv1.MachineConfigPool
	// assigned is the decision for that pool, with its reason.
	assigned pool.Choice
	// previousRole is the pool role that was recorded when the pool was decided. An earlier reconcile can have seen the
	// Node, and recorded its pool.
	previousRole string
	// configuration is the name of the rendered config with which the host boots.
	configuration string
	// host is the host that boots.
	host *host.Host
	// derivedLabels are the labels that rules derived from the facts about the host.
	derivedLabels map[string]string
	// registration is what the Node must be registered with.
	registration registration.Registration
	// architecture is that of the host, as Go names it. It is empty for one that has no name.
	architecture string
	// network are the files that configure the network of the host.
	network []networkdata.File

	// workload is a client of the workload cluster that reads live. facts are what hosts need to join that cluster.
	workload client.Client
	facts    join.Cluster
	// node is the current Node in the workload cluster.
	node *corev1.Node
	// wasOtherHost is true if that Node was pre-registered for another host before.
	wasOtherHost bool
	// nodeExisted is true if an earlier preparation had already created the Node.
	nodeExisted bool
	// parts is what the overlay of the machine is built from.
	parts join.Machine
	// credential is the join credential of the host.
	credential join.Credential
}

// phase is one step of a preparation. It is idempotent.
type phase func(ctx context.Context, s *state) error

// run runs the phases in order, up to the first error.
func (s *state) run(ctx context.Context, phases ...phase) error {
	for _, phase := range phases {
		if err := phase(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// workloadKey returns the key of the workload cluster in the cluster cache.
func (s *state) workloadKey() client.ObjectKey {
	return client.ObjectKeyFromObject(s.Cluster)
}

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
