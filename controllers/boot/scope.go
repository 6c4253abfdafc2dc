package boot

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// scope is one preparation: each phase adds what those after it need.
type scope struct {
	// config is the PoolbootConfig, kept current by every write to it.
	config *bootstrapv1.PoolbootConfig
	// machine owns the config, nil when its host belongs to none; cluster is theirs. Both come from the cache.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster

	// pools are those of the cluster, with defaults; pool is the one that the Machine boots into.
	pools []poolv1.MachineConfigPool
	pool  poolv1.MachineConfigPool
	// assigned is why it is that pool.
	assigned pool.Assignment
	// before is the role that was on record when the pool was decided: the node controller may see the Node, and have
	// it on record, before this one does.
	before string
	// configuration names the rendered config that the host is to boot with.
	configuration string
	// host is the bare metal host that boots.
	host *host.Host
	// derivedLabels are what rules made of the host's facts.
	derivedLabels map[string]string
	// registration is what the Node has to be registered with.
	registration registration.Registration

	// workload reads the workload cluster live and writes there; facts are how hosts reach it.
	workload client.Client
	facts    join.Cluster
	// node is the Node as it stands in the workload cluster.
	node *corev1.Node
	// otherHost is true when that Node was made for another host before.
	otherHost bool
	// triedBefore is true when the Node stood already: an earlier preparation went that far.
	triedBefore bool
	// credential is what the host joins with.
	credential join.Credential
}

// phase is one step of a preparation. It can be done again at any time with the same result.
type phase func(ctx context.Context, s *scope) error

// run does phases in their order, up to the first that fails.
func (s *scope) run(ctx context.Context, phases []phase) error {
	for _, do := range phases {
		if err := do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// owner names the config where Nodes and credentials have to: <namespace>/<name>.
func (s *scope) owner() string {
	return client.ObjectKeyFromObject(s.config).String()
}

// workloadKey is the key of the workload cluster in the cluster cache.
func (s *scope) workloadKey() client.ObjectKey {
	return client.ObjectKeyFromObject(s.cluster)
}
