package update

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hoststate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// host is a host that has joined.
type host struct{ *hoststate.Host }

// newHost returns a host of a Cluster with these pools.
func newHost(pools []poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine, node *corev1.Node) *host {
	return &host{hoststate.Of(pools, config, machine, node)}
}

// answerDeadline is how long the agent of a host may take to report something about what the host was told. It can
// download for as long as that before.
const answerDeadline = 10 * time.Minute

// observe records why the host is unavailable, and what the agent reports: its version, the revision that the host has,
// and since when the agent does not answer.
func (h *host) observe(now time.Time) {
	update := &h.Config.Status.Update
	update.UnavailableReason = h.UnavailableReason()
	if h.Node == nil || !h.HasAgent() {
		return
	}
	update.AgentVersion = h.Report.Version
	if h.Report.Current != "" {
		update.RunningRevision = h.Report.Current
	}
	switch isUnanswered := h.Told() != "" && h.Told() == h.Desired() && h.Progress() == rollout.Unknown; {
	case !isUnanswered:
		update.UnansweredTime = nil
	case update.UnansweredTime == nil:
		update.UnansweredTime = &metav1.Time{Time: now}
	}
}

// answer returns whether the agent should have answered before, or else in which time it should, 0 if it has.
func (h *host) answer(now time.Time) (isLate bool, left time.Duration) {
	since := h.Config.Status.Update.UnansweredTime
	if since == nil {
		return false, 0
	}
	left = answerDeadline - now.Sub(since.Time)
	return left <= 0, max(left, 0)
}

// hostsOfPool lists the hosts that are recorded in a pool and have joined, by name. A host that has not joined yet is
// not among them: it was never available.
func hostsOfPool(
	ctx context.Context, configs, cached client.Reader, nodes []corev1.Node, cluster client.ObjectKey, role string, pools []poolv1.MachineConfigPool,
) ([]*host, error) {
	ofCluster := []client.ListOption{
		client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy,
	}
	recorded := &bootstrapv1.PoolbootConfigList{}
	if err := configs.List(ctx, recorded, ofCluster...); err != nil {
		return nil, fmt.Errorf("read the PoolbootConfigs of Cluster %s: %w", cluster, err)
	}
	machines := &clusterv1.MachineList{}
	if err := cached.List(ctx, machines, ofCluster...); err != nil {
		return nil, fmt.Errorf("read the Machines of Cluster %s: %w", cluster, err)
	}
	var hosts []*host
	for _, h := range hoststate.OfPool(role, pools, recorded.Items, machines.Items, nodes) {
		hosts = append(hosts, &host{h})
	}
	return slices.Clip(hosts), nil
}

// cachedNodes returns the Nodes of a workload cluster as the cache has them.
func cachedNodes(ctx context.Context, cache client.Reader) ([]corev1.Node, error) {
	nodes := &corev1.NodeList{}
	err := cache.List(ctx, nodes, client.UnsafeDisableDeepCopy)
	return nodes.Items, err
}

// currentNodes returns the Nodes of a workload cluster as they are now. It lists their metadata, and reads only those
// Nodes of which the cache has another version: whole Nodes are several times as large, and few of them differ.
func currentNodes(ctx context.Context, cache, live client.Reader) ([]corev1.Node, error) {
	cached, err := cachedNodes(ctx, cache)
	if err != nil {
		return nil, err
	}
	known := map[string]*corev1.Node{}
	for i := range cached {
		known[cached[i].Name] = &cached[i]
	}
	current := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := live.List(ctx, current); err != nil {
		return nil, err
	}
	nodes := make([]corev1.Node, 0, len(current.Items))
	for _, metadata := range current.Items {
		if node := known[metadata.Name]; node != nil && node.ResourceVersion == metadata.ResourceVersion {
			nodes = append(nodes, *node)
			continue
		}
		node, err := workload.GetIfExists[corev1.Node](ctx, live, client.ObjectKey{Name: metadata.Name})
		if err != nil {
			return nil, err
		}
		if node != nil {
			nodes = append(nodes, *node)
		}
	}
	return nodes, nil
}
