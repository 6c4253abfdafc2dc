package boot

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
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
