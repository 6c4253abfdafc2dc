package update

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get

// controlPlaneHook keeps Cluster API from draining a Machine of the control plane, and by that from removing its member
// of etcd, while another host of the control plane is away for an update.
const controlPlaneHook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/poolboot"

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
	machines, err := controlPlaneMachines(ctx, r.APIReader, cluster)
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

// controlPlaneMachines returns the Machines of the control plane of a Cluster.
func controlPlaneMachines(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) ([]clusterv1.Machine, error) {
	machines := &clusterv1.MachineList{}
	if err := reader.List(ctx, machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("read the Machines of the control plane: %w", err)
	}
	return machines.Items, nil
}

// reserveControlPlane returns why a host of the control plane can't begin its update, or nil. Before it looks, it adds
// the hook to all other Machines of the control plane, so that Cluster API does not take another host at the same time:
// what Cluster API began before is seen, and what it begins later waits.
func (r *Updates) reserveControlPlane(ctx context.Context, s *poolScope, h *host) (*rollout.ClosedGate, error) {
	machines, err := controlPlaneMachines(ctx, r.APIReader, s.cluster)
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
	if err := r.holdOthers(ctx, machines, []*bootstrapv1.PoolbootConfig{h.Config}); err != nil {
		return nil, err
	}
	return closed()
}

// holdMachines makes the hooks follow from the slots of the pool of the control plane: whatever a crash or another
// manager left or removed, and on new Machines. It needs no workload cluster, because one that can't be reached is when
// Machines must be replaced. The pool of the control plane does this, or that of worker if there is none.
func (r *Updates) holdMachines(ctx context.Context, cluster *clusterv1.Cluster, p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) error {
	isOfControlPlane := pool.IsOfControlPlane(*p)
	isFallback := !pool.IsCustom(p.Spec.PoolRole) && !slices.ContainsFunc(pools, pool.IsOfControlPlane)
	if !workload.HasNodes(cluster, r.WatchFilterValue) || !isOfControlPlane && !isFallback {
		return nil
	}
	machines, err := controlPlaneMachines(ctx, r.Client, cluster)
	isHeld := func(machine clusterv1.Machine) bool {
		return metav1.HasAnnotation(machine.ObjectMeta, controlPlaneHook)
	}
	hasSlots := isOfControlPlane && len(p.Status.Slots) > 0
	if err != nil || !hasSlots && !slices.ContainsFunc(machines, isHeld) {
		return err
	}
	live, err := workload.PoolsOfCluster(ctx, r.APIReader, workload.ClusterOfPool(p)) // another manager can have given slots since
	if err != nil {
		return err
	}
	var away []*bootstrapv1.PoolbootConfig
	for _, p := range slices.DeleteFunc(live, func(p poolv1.MachineConfigPool) bool { return !pool.IsOfControlPlane(p) }) {
		if p.Status.SlotsOpenTime == nil { // its slots are lost, and are built again
			return nil
		}
		for _, slot := range p.Status.Slots {
			config := &bootstrapv1.PoolbootConfig{}
			if err := r.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: slot.Host}, config); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read PoolbootConfig %s of a host with a slot: %w", slot.Host, err)
			}
			away = append(away, config)
		}
	}
	return r.holdOthers(ctx, machines, away)
}

// holdOthers adds the hook to all Machines but that of the host that is away, and removes it if no other host is.
func (r *Updates) holdOthers(ctx context.Context, machines []clusterv1.Machine, away []*bootstrapv1.PoolbootConfig) error {
	for i := range machines {
		machine := &machines[i]
		isOther := func(config *bootstrapv1.PoolbootConfig) bool { return record.MachineName(config) != machine.Name }
		if err := r.setHook(ctx, machine, slices.ContainsFunc(away, isOther)); err != nil {
			return err
		}
	}
	return nil
}

// setHook adds the hook to a Machine, or removes it. The patch is locked: another manager can have added a hook since.
func (r *Updates) setHook(ctx context.Context, machine *clusterv1.Machine, isHeld bool) error {
	if isHeld == metav1.HasAnnotation(machine.ObjectMeta, controlPlaneHook) {
		return nil
	}
	desired := machine.DeepCopy()
	if isHeld {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, controlPlaneHook, "poolboot")
	} else {
		delete(desired.Annotations, controlPlaneHook)
	}
	if err := r.Client.Patch(ctx, desired, status.Locked(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotation %s of Machine %s: %w", controlPlaneHook, client.ObjectKeyFromObject(machine), err)
	}
	return nil
}
