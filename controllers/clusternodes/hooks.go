package clusternodes

import (
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/drainhook"
)

// followSlots makes the hooks of the control plane follow from its slots if no reconciler of a pool does: the pool was
// deleted, is paused or is for another manager, or this manager updates no hosts. Otherwise this one stays away: a pool
// adds hooks just before a host has a slot.
func (r *Reconciler) followSlots(ctx context.Context, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
	isReconciled := func(p poolv1.MachineConfigPool) bool {
		return pool.IsOfControlPlane(p) && !annotations.HasPaused(&p) && (r.WatchFilterValue == "" || labels.HasWatchLabel(&p, r.WatchFilterValue))
	}
	if r.UpdatesHosts && slices.ContainsFunc(pools, isReconciled) {
		return nil
	}
	return drainhook.FollowSlots(ctx, r.Client, r.APIReader, cluster, pools)
}

// hasHook matches the events of Machines with a hook.
func hasHook() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		machine, ok := object.(*clusterv1.Machine)
		return ok && drainhook.Is(machine)
	})
}
