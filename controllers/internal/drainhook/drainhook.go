// Package drainhook keeps Cluster API from draining other Machines of a control plane while one of its hosts is
// updated.
package drainhook

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch;patch

// Annotation keeps Cluster API from draining a Machine of the control plane, and by that from removing its member of
// etcd.
const Annotation = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/poolboot"

// Is reports whether a Machine has the hook.
func Is(machine *clusterv1.Machine) bool {
	return metav1.HasAnnotation(machine.ObjectMeta, Annotation)
}

// Machines returns the Machines of the control plane of a Cluster.
func Machines(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]clusterv1.Machine, error) {
	machines := &clusterv1.MachineList{}
	if err := reader.List(ctx, machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("read the Machines of the control plane: %w", err)
	}
	return machines.Items, nil
}

// FollowSlots makes the hooks follow from the slots of the pool of the control plane: whatever a crash or another
// manager left or removed, and on new Machines. It needs no workload cluster, because one that can't be reached is when
// Machines must be replaced. The pools are those of the Cluster in the cache. live tells whether they have slots.
func FollowSlots(ctx context.Context, c client.Client, live client.Reader, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
	machines, err := Machines(ctx, c, cluster)
	hasSlots := func(p poolv1.MachineConfigPool) bool { return pool.IsOfControlPlane(p) && len(p.Status.Slots) > 0 }
	isHeld := func(machine clusterv1.Machine) bool { return Is(&machine) }
	if err != nil || !slices.ContainsFunc(pools, hasSlots) && !slices.ContainsFunc(machines, isHeld) {
		return err
	}
	if pools, err = workload.PoolsOfCluster(ctx, live, cluster); err != nil { // another manager can have given slots since
		return err
	}
	var away []*bootstrapv1.PoolbootConfig
	for _, p := range slices.DeleteFunc(pools, func(p poolv1.MachineConfigPool) bool { return !pool.IsOfControlPlane(p) }) {
		if p.Status.SlotsOpenTime == nil { // its slots are lost, and are built again
			return nil
		}
		for _, slot := range p.Status.Slots {
			config := &bootstrapv1.PoolbootConfig{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: slot.Host}, config); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read PoolbootConfig %s of a host with a slot: %w", slot.Host, err)
			}
			away = append(away, config)
		}
	}
	return HoldOthers(ctx, c, machines, away...)
}

// HoldOthers adds the hook to all Machines but that of the host that is away, and removes it if no other host is. A
// Machine that is being deleted gets none: it was let go, or its deletion began before the host had a slot.
func HoldOthers(ctx context.Context, c client.Client, machines []clusterv1.Machine, away ...*bootstrapv1.PoolbootConfig) error {
	for i := range machines {
		machine := &machines[i]
		isOther := func(config *bootstrapv1.PoolbootConfig) bool { return record.MachineName(config) != machine.Name }
		isHeld := slices.ContainsFunc(away, isOther)
		if isHeld && !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if err := set(ctx, c, machine, isHeld); err != nil {
			return err
		}
	}
	return nil
}

// set adds the hook to a Machine, or removes it. The patch is locked: another manager can have added a hook since.
func set(ctx context.Context, c client.Client, machine *clusterv1.Machine, isHeld bool) error {
	if isHeld == Is(machine) {
		return nil
	}
	desired := machine.DeepCopy()
	if isHeld {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, Annotation, "poolboot")
	} else {
		delete(desired.Annotations, Annotation)
	}
	if err := c.Patch(ctx, desired, status.Locked(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotation %s of Machine %s: %w", Annotation, client.ObjectKeyFromObject(machine), err)
	}
	return nil
}
