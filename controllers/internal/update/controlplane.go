package update

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/drainhook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get

// readControlPlane reads everything that decides whether a host of the control plane can be away. w reads live.
func (r *Updates) readControlPlane(ctx context.Context, cluster *clusterv1.Cluster, w client.Reader) (*rollout.ControlPlane, error) {
	live := &clusterv1.Cluster{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(cluster), live); err != nil {
		return nil, fmt.Errorf("read the Cluster: %w", err)
	}
	plane := &rollout.ControlPlane{Status: live.Status.ControlPlane, Renewed: sets.New[string]()}
	if ref := live.Spec.ControlPlaneRef; ref.APIGroup == controlplanev1.GroupVersion.Group && ref.Kind == "KubeadmControlPlane" {
		plane.Kubeadm = &controlplanev1.KubeadmControlPlane{}
		if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, plane.Kubeadm); err != nil {
			return nil, fmt.Errorf("read the KubeadmControlPlane: %w", err)
		}
	}
	machines, err := drainhook.Machines(ctx, r.APIReader, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	plane.Machines = machines
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := w.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("read the Nodes: %w", err)
	}
	plane.Nodes = slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool { return !pool.IsControlPlane(node.Labels) })
	if err := w.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}); err != nil {
		return nil, fmt.Errorf("read the static Pods of the control plane: %w", err)
	}
	plane.Pods = pods.Items
	for i := range plane.Nodes {
		name := plane.Nodes[i].Name
		isRenewed, err := r.isRenewed(ctx, w, client.ObjectKeyFromObject(cluster), name)
		if err != nil {
			return nil, err
		}
		if isRenewed {
			plane.Renewed.Insert(name)
		}
	}
	return plane, nil
}

// reserveControlPlane returns why a host of the control plane can't begin its update, or nil. Before it looks, it adds
// the hook to all other Machines of the control plane, so that Cluster API does not take another host at the same time:
// what Cluster API began before is seen, and what it begins later waits.
func (r *Updates) reserveControlPlane(ctx context.Context, s *poolScope, h *host) (*rollout.ClosedGate, error) {
	machines, err := drainhook.Machines(ctx, r.APIReader, workload.ClusterOfPool(s.pool))
	if err != nil {
		return nil, err
	}
	w, err := workload.LiveClient(ctx, r.ClusterCache, workload.ClusterOfPool(s.pool))
	if err != nil {
		return nil, err
	}
	closed := func() (*rollout.ClosedGate, error) {
		plane, err := r.readControlPlane(ctx, s.cluster, w)
		if err != nil {
			return nil, err
		}
		if why := plane.WhyNotWithout(h.Node.Name); why != "" {
			return &rollout.ClosedGate{Reason: poolv1.ControlPlaneNotReadyReason, Why: fmt.Sprintf("the control plane can't be without Node %s now: %s", h.Node.Name, why)}, nil
		}
		return nil, nil
	}
	if gate, err := closed(); gate != nil || err != nil { // without a hook, nothing is to be undone
		return gate, err
	}
	if err := drainhook.HoldOthers(ctx, r.Client, machines, h.Config); err != nil {
		return nil, err
	}
	return closed()
}

// heldDeletions returns the names of the Machines of the control plane whose deletion waits for the slot of a host. No
// event of these Machines requests the host, so that of a host with a slot is looked at again after some time.
func (r *Updates) heldDeletions(ctx context.Context, h *host, in poolContext) (names []string, again time.Duration, _ error) {
	if !pool.IsOfControlPlane(*in.pool) || rollout.SlotOf(in.pool.Status.Slots, h.Name()) == nil {
		return nil, 0, nil
	}
	machines, err := drainhook.Machines(ctx, r.Client, workload.ClusterOfPool(in.pool))
	for i := range machines {
		if !machines[i].DeletionTimestamp.IsZero() && drainhook.Is(&machines[i]) {
			names = append(names, machines[i].Name)
		}
	}
	return names, drainRetry, err
}

// letDeletedGo removes the hook of other Machines that are being deleted, while a host waits for the end of its drain:
// it is not away yet, and must not go away while Cluster API deletes another Machine. Otherwise each would wait for the
// other one. Its drain starts again first: a manager that has looked at the Machines before can't end it any more,
// because that write is locked to an earlier version of the Node.
func (r *Updates) letDeletedGo(ctx context.Context, h *host, d drainer) error {
	machines, err := drainhook.Machines(ctx, r.APIReader, client.ObjectKeyFromObject(d.cluster))
	if err != nil {
		return err
	}
	machines = slices.DeleteFunc(machines, func(machine clusterv1.Machine) bool {
		return machine.DeletionTimestamp.IsZero() || !drainhook.Is(&machine)
	})
	if len(machines) == 0 {
		return nil
	}
	if err := d.restart(ctx, h); err != nil {
		return err
	}
	return drainhook.HoldOthers(ctx, r.Client, machines)
}
