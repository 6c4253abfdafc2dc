package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// maxNames is how many names an answer lists.
const maxNames = 10

// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools;machineconfigs,verbs=get;list
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list

// ValidateDelete refuses to delete a pool that Machines are in or would boot into, and the worker pool while others
// inherit from it, unless the annotation ForceDeleteAnnotation is on it. A pool that goes with its Cluster, or moves
// with it, may always go, and so may one of two with the same role.
func (w *MachineConfigPool) ValidateDelete(ctx context.Context, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	if _, moves := p.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moves || p.Annotations[poolv1.ForceDeleteAnnotation] == "true" {
		return nil, nil
	}
	if goes, err := clusterGoes(ctx, w.Reader, p); err != nil || goes {
		return nil, err
	}
	others, err := w.others(ctx, p)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(other poolv1.MachineConfigPool) bool { return !other.DeletionTimestamp.IsZero() })
	if slices.ContainsFunc(others, func(other poolv1.MachineConfigPool) bool { return pool.SameRole(&other, p) }) {
		return nil, nil
	}
	machines, err := w.machines(ctx, p, others)
	if err != nil {
		return nil, err
	}
	const force = "annotate the pool with " + poolv1.ForceDeleteAnnotation + "=true to delete it all the same"
	var why []string
	if len(machines) > 0 {
		why = append(why, fmt.Sprintf("%d Machine(s) and their Nodes are in it or would boot into it: %s; give them the labels of another pool, "+
			"or delete the Machines (of hosts without one, the PoolbootConfigs)", len(machines), list(machines)))
	}
	if !pool.IsCustom(p.Spec.PoolRole) && len(others) > 0 {
		var names []string
		for i := range others {
			names = append(names, others[i].Name)
		}
		why = append(why, fmt.Sprintf("%d pool(s) of Cluster %s inherit from it: %s; delete those first", len(names), p.Spec.ClusterName, list(names)))
	}
	if len(why) == 0 {
		return nil, nil
	}
	return nil, apierrors.NewForbidden(poolv1.GroupVersion.WithResource("machineconfigpools").GroupResource(), p.Name,
		fmt.Errorf("%s; or %s", strings.Join(why, "; "), force))
}

// clusterGoes says whether a pool's Cluster is gone or going: what belongs to it goes with it.
func clusterGoes(ctx context.Context, reader client.Reader, p *poolv1.MachineConfigPool) (bool, error) {
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterName}
	if err := reader.Get(ctx, key, cluster); apierrors.IsNotFound(err) {
		return true, nil
	} else if err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("pool's Cluster %s: %w", key, err))
	}
	return !cluster.DeletionTimestamp.IsZero(), nil
}

// machines returns the names of the Machines that are recorded in a pool or, while nothing is on record of them, would
// boot into it; with each its Node, if that was made. Of hosts without a Machine they are the names of the
// PoolbootConfigs.
func (w *MachineConfigPool) machines(ctx context.Context, p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) ([]string, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := w.Reader.List(ctx, configs, client.InNamespace(p.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("PoolbootConfigs of Cluster %s/%s: %w", p.Namespace, p.Spec.ClusterName, err))
	}
	wouldBoot, err := w.wouldBoot(ctx, p, configs.Items, append(slices.Clone(others), *p))
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range configs.Items {
		c := &configs.Items[i]
		if c.Status.PoolRole != p.Spec.PoolRole && !wouldBoot[c.Name] {
			continue
		}
		name := cmp.Or(machineOf(c), c.Name)
		if record.HasNode(c) {
			name += " (Node " + c.Status.NodeRef.Name + ")"
		}
		names = append(names, name)
	}
	return names, nil
}

// machineOf returns the name of the Machine that owns a config; "" without one.
func machineOf(config *bootstrapv1.PoolbootConfig) string {
	for _, owner := range config.OwnerReferences {
		if owner.Kind == "Machine" {
			return owner.Name
		}
	}
	return ""
}

// wouldBoot returns the names of those configs that have nothing on record and would boot into a pool, by the labels of
// their Machines.
func (w *MachineConfigPool) wouldBoot(
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
			if machines.Items[j].Name == machineOf(&undecided[i]) {
				boot.Machine = &machines.Items[j]
			}
		}
		// Without a pool for it, which the error would say, the Machine is no pool's.
		if assigned, err := pool.ForBoot(boot); err == nil && assigned.Role == p.Spec.PoolRole {
			names[undecided[i].Name] = true
		}
	}
	return names, nil
}

// list writes the first of some names, sorted, and says when there are more.
func list(names []string) string {
	slices.Sort(names)
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
