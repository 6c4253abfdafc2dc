package update

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// host is a host that has joined.
type host struct {
	config *bootstrapv1.PoolbootConfig
	// machine owns the config. It is nil for a host without a Machine.
	machine *clusterv1.Machine
	// node is the recorded Node. It is nil if it does not exist, or was replaced by another one that is not recorded
	// yet.
	node *corev1.Node
	// report is what the Node says.
	report report
}

func newHost(config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine, node *corev1.Node) *host {
	if node != nil && string(node.UID) != config.Status.NodeRef.UID {
		node = nil
	}
	return &host{config: config, machine: machine, node: node, report: reportOf(node)}
}

// isFollowed reports whether a PoolbootConfig is that of a host that has joined, for which this package is responsible.
func isFollowed(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && record.HasJoined(config) && record.HasNode(config)
}

func (h *host) name() string { return h.config.Name }

// desired returns the revision that is recorded for the host.
func (h *host) desired() string { return h.config.Status.Update.DesiredRevision }

// told returns the revision that the host was told to have.
func (h *host) told() string {
	if h.node == nil {
		return ""
	}
	return h.node.Annotations[agentv1.DesiredAnnotation]
}

// hasAgent reports whether the host runs an agent, or did when it was told something.
func (h *host) hasAgent() bool { return h.report.version != "" || h.desired() != "" }

// progress returns how far the host is with what it was told.
func (h *host) progress() rollout.Progress { return h.report.progress(h.told()) }

// isDeleting reports whether the Machine is being deleted. Cluster API drains its Node.
func (h *host) isDeleting() bool { return h.machine != nil && !h.machine.DeletionTimestamp.IsZero() }

// isUnavailable reports whether the Node can't run Pods. After an update, this is so until it is uncordoned.
func (h *host) isUnavailable() bool {
	return h.isDeleting() || h.node == nil || !h.node.DeletionTimestamp.IsZero() || !util.IsNodeReady(h.node) || h.node.Spec.Unschedulable
}

// canBeTold reports whether telling the host what is recorded disrupts nothing: it has that revision already, or its
// agent has adopted nothing yet and has nothing to compare it with.
func (h *host) canBeTold() bool {
	return h.report.isDone(h.desired()) || h.told() == "" && h.report.current == "" && h.report.version != ""
}

// isUntold reports whether the host must be told what is recorded.
func (h *host) isUntold() bool {
	return h.node != nil && h.desired() != "" && h.told() != h.desired() && !h.isExcluded()
}

// isAdopting reports whether the agent has not adopted yet what its host booted with. It must not get another revision
// before: the config server serves only one, and the agent begins with the one that Ignition wrote.
func (h *host) isAdopting() bool { return h.desired() != "" && h.report.current == "" }

// isExcluded reports whether the host is left alone.
func (h *host) isExcluded() bool {
	return h.isDeleting() || !h.hasAgent() || h.node == nil || capiannotations.HasPaused(h.config)
}

// forRollout returns the host as the rollout sees it. target is "" if its target is not known.
func (h *host) forRollout(target string) rollout.Host {
	in := rollout.Host{
		Name: h.name(), Desired: h.desired(), Target: target, Progress: h.progress(),
		IsPending: h.isUntold() && !h.canBeTold(), IsUnavailable: h.isUnavailable(), IsExcluded: target == "" || h.isExcluded() || h.isAdopting(),
	}
	if h.node != nil {
		in.Zone, in.CreationTime = h.node.Labels[corev1.LabelTopologyZone], h.node.CreationTimestamp.Time
	}
	return in
}

// hostsOfPool lists the hosts that are recorded in a pool and have joined, by name. A host that has not joined yet is
// not among them: it was never available.
func hostsOfPool(ctx context.Context, reader client.Reader, cached, workload client.Reader, cluster client.ObjectKey, role string) ([]*host, error) {
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
	machineOf, nodeOf := map[string]*clusterv1.Machine{}, map[string]*corev1.Node{}
	for i := range machines.Items {
		machineOf[machines.Items[i].Name] = &machines.Items[i]
	}
	for i := range nodes.Items {
		nodeOf[nodes.Items[i].Name] = &nodes.Items[i]
	}
	var hosts []*host
	for i := range configs.Items {
		if c := &configs.Items[i]; isFollowed(c) && c.Status.PoolRole == role {
			hosts = append(hosts, newHost(c, machineOf[record.MachineName(c)], nodeOf[c.Status.NodeRef.Name]))
		}
	}
	return slices.Clip(hosts), nil
}
