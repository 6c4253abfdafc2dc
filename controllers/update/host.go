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

// observe records what the agent reports: the revision that the host has, and since when the agent does not answer.
func (h *host) observe(now time.Time) {
	update := &h.Config.Status.Update
	if h.Node == nil || !h.HasAgent() {
		return
	}
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
