package update

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hoststate"
)

// host is a host that has joined.
type host struct{ *hoststate.Host }

// newHost returns a host of a Cluster with these pools.
func newHost(pools []poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine, node *corev1.Node) *host {
	return &host{hoststate.Of(pools, config, machine, node)}
}

// hostsOfPool lists the hosts that are recorded in a pool and have joined, by name. A host that has not joined yet is
// not among them: it was never available.
func hostsOfPool(ctx context.Context, reader client.Reader, cached, workload client.Reader, cluster client.ObjectKey, role string, pools []poolv1.MachineConfigPool) ([]*host, error) {
	ofCluster := []client.ListOption{
		client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy,
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := reader.List(ctx, configs, ofCluster...); err != nil {
		return nil, fmt.Errorf("read the PoolbootConfigs of Cluster %s: %w", cluster, err)
	}
	machines := &clusterv1.MachineList{}
	if err := cached.List(ctx, machines, ofCluster...); err != nil {
		return nil, fmt.Errorf("read the Machines of Cluster %s: %w", cluster, err)
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read the Nodes of Cluster %s: %w", cluster, err)
	}
	var hosts []*host
	for _, h := range hoststate.OfPool(role, pools, configs.Items, machines.Items, nodes.Items) {
		hosts = append(hosts, &host{h})
	}
	return slices.Clip(hosts), nil
}
