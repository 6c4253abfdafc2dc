package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// maxNames is the maximum number of names in a message.
const maxNames = 10

// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools;machineconfigs,verbs=get;list
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list

// ValidateDelete refuses to delete a pool that has Machines which no other pool takes, or into which Machines would
// boot, and the worker pool while other pools inherit from it. It allows the deletion if the pool has the annotation
// ForceDeleteAnnotation, if its Cluster is deleted or moved, or if another pool has the same role.
func (w *MachineConfigPool) ValidateDelete(ctx context.Context, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	if _, isMoved := p.Annotations[clusterctlv1.DeleteForMoveAnnotation]; isMoved || p.Annotations[poolv1.ForceDeleteAnnotation] == "true" {
		return nil, nil
	}
	if deleted, err := isClusterDeleted(ctx, w.Reader, p); err != nil || deleted {
		return nil, err
	}
	others, err := w.otherPools(ctx, p)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(other poolv1.MachineConfigPool) bool { return !other.DeletionTimestamp.IsZero() })
	if slices.ContainsFunc(others, func(other poolv1.MachineConfigPool) bool { return pool.SameRole(&other, p) }) {
		return nil, nil
	}
	hosts, taken, err := w.hostNames(ctx, p, others)
	if err != nil {
		return nil, err
	}
	const force = "annotate the pool with " + poolv1.ForceDeleteAnnotation + "=true to delete it anyway"
	var why []string
	if len(hosts) > 0 {
		why = append(why, fmt.Sprintf("%d host(s) are in it or would boot into it, and no other pool takes them: %s; give them the labels of another pool, "+
			"or delete their Machines (of hosts without one, the PoolbootConfigs)", len(hosts), excerpt.Names(maxNames, hosts)))
	}
	var names []string
	for i := range others {
		if p.Spec.PoolRole == poolv1.RoleWorker && pool.IsCustom(others[i].Spec.PoolRole) {
			names = append(names, others[i].Name)
		}
	}
	if len(names) > 0 {
		why = append(why, fmt.Sprintf("%d pool(s) of Cluster %s inherit from it: %s; delete those first", len(names), p.Spec.ClusterName, excerpt.Names(maxNames, names)))
	}
	if len(why) == 0 {
		return takenWarnings(taken), nil
	}
	return nil, apierrors.NewForbidden(poolv1.GroupVersion.WithResource("machineconfigpools").GroupResource(), p.Name,
		fmt.Errorf("%s; or %s", strings.Join(why, "; "), force))
}

// isClusterDeleted reports whether the Cluster of a pool does not exist or is being deleted. Its pools are deleted with
// it.
func isClusterDeleted(ctx context.Context, reader client.Reader, p *poolv1.MachineConfigPool) (bool, error) {
	cluster, err := clusterOf(ctx, reader, p)
	return err == nil && (cluster == nil || !cluster.DeletionTimestamp.IsZero()), err
}

// clusterOf reads the Cluster of a pool, and returns nil if it does not exist.
func clusterOf(ctx context.Context, reader client.Reader, p *poolv1.MachineConfigPool) (*clusterv1.Cluster, error) {
	key := workload.ClusterOfPool(p)
	cluster, err := workload.GetIfExists[clusterv1.Cluster](ctx, reader, key)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("the pool's Cluster %s: %w", key, err))
	}
	return cluster, nil
}

// takenWarnings says what happens to the hosts that other pools take. The argument has their names by these pools.
func takenWarnings(taken map[string][]string) (warnings admission.Warnings) {
	for _, role := range slices.Sorted(maps.Keys(taken)) {
		warnings = append(warnings, fmt.Sprintf("%d host(s) change to the pool with role %s, under its spec.maxUnavailable: %s",
			len(taken[role]), role, excerpt.Names(maxNames, taken[role])))
	}
	return warnings
}

// hostNames returns the names of the hosts whose recorded pool is this pool, and of those without a recorded pool that
// would boot into it. Those that another pool takes are taken, by the role of that pool.
func (w *MachineConfigPool) hostNames(
	ctx context.Context, p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool,
) (names []string, taken map[string][]string, err error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := w.Reader.List(ctx, configs, client.InNamespace(p.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}); err != nil {
		return nil, nil, apierrors.NewInternalError(fmt.Errorf("PoolbootConfigs of Cluster %s/%s: %w", p.Namespace, p.Spec.ClusterName, err))
	}
	bootingInto, err := w.configsBootingInto(ctx, p, configs.Items, append(slices.Clone(others), *p))
	if err != nil {
		return nil, nil, err
	}
	taken = map[string][]string{}
	for i := range configs.Items {
		c := &configs.Items[i]
		if c.Status.PoolRole != p.Spec.PoolRole && !bootingInto[c.Name] {
			continue
		}
		name := record.HostName(c)
		if role := c.Status.FallbackPoolRole; isTaken(c, others) {
			taken[role] = append(taken[role], name)
			continue
		}
		names = append(names, name)
	}
	return names, taken, nil
}

// isTaken reports whether one of the other pools takes a running host when its pool is deleted. A host that has not
// joined yet boots into its recorded pool, or not at all.
func isTaken(c *bootstrapv1.PoolbootConfig, others []poolv1.MachineConfigPool) bool {
	return record.HasJoined(c) && c.Status.FallbackPoolRole != "" && slices.ContainsFunc(others, func(other poolv1.MachineConfigPool) bool {
		return other.Spec.PoolRole == c.Status.FallbackPoolRole
	})
}

// configsBootingInto returns the names of the PoolbootConfigs without a recorded pool that would boot into a pool.
func (w *MachineConfigPool) configsBootingInto(
	ctx context.Context, p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, pools []poolv1.MachineConfigPool,
) (map[string]bool, error) {
	undecided := slices.DeleteFunc(slices.Clone(configs), func(c bootstrapv1.PoolbootConfig) bool {
		return c.Status.PoolRole != "" || !c.DeletionTimestamp.IsZero()
	})
	if len(undecided) == 0 {
		return nil, nil
	}
	machines := &clusterv1.MachineList{}
	if err := w.Reader.List(ctx, machines, client.InNamespace(p.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list Machines of Cluster %s/%s: %w", p.Namespace, p.Spec.ClusterName, err))
	}
	names := map[string]bool{}
	for i := range undecided {
		boot := pool.Boot{Config: &undecided[i], Pools: pools}
		for j := range machines.Items {
			if machines.Items[j].Name == record.MachineName(&undecided[i]) {
				boot.Machine = &machines.Items[j]
			}
		}
		// An error means that no pool can be decided for the Machine.
		if assigned, err := pool.ForBoot(boot); err == nil && assigned.Role == p.Spec.PoolRole {
			names[undecided[i].Name] = true
		}
	}
	return names, nil
}
