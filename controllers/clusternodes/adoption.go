package clusternodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// adoptNodes creates the PoolbootConfigs that adopt the Nodes of Machines for pools with spec.adoption. What holds one
// Node back is an event on its Machine. The nodes are in the cache and must not be changed.
func (r *Reconciler) adoptNodes(ctx context.Context, cluster *clusterv1.Cluster, nodes []corev1.Node, pools []poolv1.MachineConfigPool) error {
	if !slices.ContainsFunc(pools, func(p poolv1.MachineConfigPool) bool { return p.Spec.AdoptsNodes() }) {
		return nil
	}
	inCluster := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy}
	machines, configs := &clusterv1.MachineList{}, &bootstrapv1.PoolbootConfigList{}
	if err := errors.Join(r.Client.List(ctx, machines, inCluster...), r.Client.List(ctx, configs, inCluster...)); err != nil {
		return err
	}
	slices.SortFunc(machines.Items, func(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) }) // the cache has no order
	machinesOf := machinesWithoutConfig(machines.Items, configs.Items)
	var errs []error
	for i := range nodes {
		if of := machinesOf[nodes[i].Name]; len(of) > 0 {
			errs = append(errs, r.adopt(ctx, cluster, &nodes[i], of, pools))
		}
	}
	return errors.Join(errs...)
}

// machinesWithoutConfig returns, by the names of their Nodes, the Machines that have joined, unless one of the
// PoolbootConfigs is for the Node or belongs to the Machine. So the owner of a workload cluster, who can rename its
// Nodes, gets one PoolbootConfig for each Machine.
func machinesWithoutConfig(machines []clusterv1.Machine, configs []bootstrapv1.PoolbootConfig) map[string][]*clusterv1.Machine {
	hasConfig, owners := map[string]bool{}, map[types.UID]bool{}
	for i := range configs {
		hasConfig[configs[i].Status.NodeRef.Name], hasConfig[configs[i].Spec.Host.NodeName] = true, true
		for _, owner := range configs[i].OwnerReferences {
			owners[owner.UID] = true
		}
	}
	machinesOf := map[string][]*clusterv1.Machine{}
	for i := range machines {
		m := &machines[i]
		if node := m.Status.NodeRef.Name; node != "" && !hasConfig[node] && !owners[m.UID] {
			machinesOf[node] = append(machinesOf[node], m)
		}
	}
	return machinesOf
}

// adopt creates the PoolbootConfig that adopts a Node, if its pool says so. The name is that of its Machine, as those
// that Cluster API creates: root on a host, who can choose the name of its Node, takes the name of no other object.
func (r *Reconciler) adopt(ctx context.Context, cluster *clusterv1.Cluster, node *corev1.Node, machines []*clusterv1.Machine, pools []poolv1.MachineConfigPool) error {
	machine := machines[0]
	p, why := adoptingPool(node, machines, pools)
	if why != "" {
		r.notAdopted(machine, node, why)
	}
	if p == nil {
		return nil
	}
	key := client.ObjectKeyFromObject(machine)
	config := record.NewAdoption(key, cluster.Name, node.Name, p.Spec.PoolRole, bootstrapv1.AdoptionPolicy(p.Spec.Adoption))
	config.OwnerReferences = []metav1.OwnerReference{record.AdoptionOwner(machine)}
	if filter, ok := cluster.Labels[clusterv1.WatchLabel]; ok {
		config.Labels[clusterv1.WatchLabel] = filter
	}
	err := r.Client.Create(ctx, config)
	switch {
	case err == nil:
		r.Recorder.Eventf(machine, config, corev1.EventTypeNormal, poolv1.EventPoolbootConfigCreated, "AdoptNode",
			"PoolbootConfig %s is created: the spec.adoption of MachineConfigPool %s is %s, and adopts Node %s", key.Name, p.Name, p.Spec.Adoption, node.Name)
		return nil
	case apierrors.IsInvalid(err):
		r.notAdopted(machine, node, "PoolbootConfig "+key.Name+" can't be created: "+err.Error())
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("adopt Node %s: %w", node.Name, err)
	}
	current := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, key, current); err != nil {
		return fmt.Errorf("adopt Node %s: %w", node.Name, err) // the cache is stale
	}
	isOwn := record.IsAdopted(current) && (current.Spec.Host.NodeName == node.Name || record.MachineName(current) == machine.Name)
	if !isOwn || record.ClusterName(current) != cluster.Name {
		r.notAdopted(machine, node, fmt.Sprintf("PoolbootConfig %s exists and is that of host %s: delete it, or adopt the Node by a PoolbootConfig with another name", key.Name, record.HostName(current)))
	}
	return nil
}

// adoptingPool returns the pool that adopts the Node of Machines, or nil if none does, and why not if somebody can
// correct that. Labels that a kubelet can set don't get a Node the configuration of a pool, and neither does the
// providerID of another Machine, with which Cluster API sets the labels of that Machine on the Node.
func adoptingPool(node *corev1.Node, machines []*clusterv1.Machine, pools []poolv1.MachineConfigPool) (p *poolv1.MachineConfigPool, why string) {
	machine := machines[0]
	decision, err := pool.Decide(node.Labels, pools)
	// kubeadm sets the label of a control plane after the Node has registered.
	isControlPlane := util.IsControlPlaneMachine(machine)
	if err != nil || decision.Role == "" || decision.ControlPlane != isControlPlane || !record.IsBootedByOther(machine) || !machine.DeletionTimestamp.IsZero() {
		return nil, ""
	}
	p, err = pool.OfRole(pools, decision.Role)
	if err != nil || !p.DeletionTimestamp.IsZero() || !p.Spec.AdoptsNodes() {
		return nil, ""
	}
	if len(machines) > 1 {
		return nil, "it is also the Node of Machine " + machines[1].Name + ": delete the Machine that is not on this host"
	}
	labels := maps.Clone(node.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return registration.KubeletCanSet(key) })
	if protected, err := pool.Decide(labels, pools); err != nil || protected.Role != decision.Role {
		return nil, fmt.Sprintf("labels that its kubelet can set put it in the pool of MachineConfigPool %s: select Nodes by a label that starts with "+
			"node-role.kubernetes.io/ or node-restriction.kubernetes.io/, or adopt it with kubectl poolboot adopt", p.Name)
	}
	return p, ""
}

// notAdopted warns that a Node is not adopted.
func (r *Reconciler) notAdopted(machine *clusterv1.Machine, node *corev1.Node, why string) {
	r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, poolv1.EventNodeNotAdopted, "AdoptNode", "Node %s is not adopted: %s", node.Name, why)
}

// hasJoined matches Machines of other bootstrap providers when their Node is known, and when they are deleted: another
// one can have a Node with the same name.
func hasJoined() predicate.Predicate {
	hasNode := func(object client.Object) bool {
		machine, ok := object.(*clusterv1.Machine)
		return ok && machine.Status.NodeRef.IsDefined() && record.IsBootedByOther(machine)
	}
	return predicate.And(predicate.NewPredicateFuncs(hasNode), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return !hasNode(e.ObjectOld) }})
}

// isDeleted matches the deletion of PoolbootConfigs that adopted a Node, or that can have the name of a Machine of
// another bootstrap provider.
func isDeleted() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc: func(e event.DeleteEvent) bool {
			config, ok := e.Object.(*bootstrapv1.PoolbootConfig)
			return ok && record.IsMachineless(config)
		},
	}
}

// clusterOfMachine returns a request for the Cluster of a Machine.
func clusterOfMachine(_ context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}}}
}

// clusterOfConfig returns a request for the Cluster of a PoolbootConfig.
func clusterOfConfig(_ context.Context, object client.Object) []ctrl.Request {
	config, ok := object.(*bootstrapv1.PoolbootConfig)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: record.ClusterKey(config)}}
}
