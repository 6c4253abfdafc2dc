package pool

import (
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// OfRole returns the pool of a Cluster with this role, a *NotFoundError if there is none and a *DuplicateError if there
// are several. It does not choose one of several: their ages, for example, change with clusterctl move. A pool that is
// being deleted counts only if there is no other pool of the role.
func OfRole(pools []poolv1.MachineConfigPool, role string) (*poolv1.MachineConfigPool, error) {
	var found, deleted []*poolv1.MachineConfigPool
	for i := range pools {
		switch p := &pools[i]; {
		case p.Spec.PoolRole != role:
		case p.DeletionTimestamp.IsZero():
			found = append(found, p)
		default:
			deleted = append(deleted, p)
		}
	}
	if len(found) == 0 {
		found = deleted
	}
	switch len(found) {
	case 0:
		return nil, &NotFoundError{Role: role}
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = p.Name
	}
	slices.Sort(names)
	return nil, &DuplicateError{Role: role, Pools: names}
}

// OfRendered returns the pool for which a rendered config was created, by the config's name. It returns nil if that
// pool does not exist, or if the name is not that of a rendered config.
func OfRendered(pools []poolv1.MachineConfigPool, rendered string) *poolv1.MachineConfigPool {
	name, ok := strings.CutPrefix(rendered, poolv1.RenderedNamePrefix)
	hash := strings.LastIndexByte(name, '-')
	if !ok || hash <= 0 {
		return nil
	}
	if i := slices.IndexFunc(pools, func(p poolv1.MachineConfigPool) bool { return p.Name == name[:hash] }); i >= 0 {
		return &pools[i]
	}
	return nil
}

// ParentOf returns the pool of the Cluster that a pool inherits from: worker for a custom pool, and nil for the others.
// The errors are those of OfRole.
func ParentOf(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) (*poolv1.MachineConfigPool, error) {
	if !IsCustom(p.Spec.PoolRole) {
		return nil, nil
	}
	return OfRole(pools, poolv1.RoleWorker)
}

// ScopeOf returns what a MachineConfig can have: it depends on whether it is a rendered config, and whether a pool for
// the control plane selects it or has rendered it.
func ScopeOf(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool) ignition.Scope {
	if IsRenderedName(config.Name) {
		scope := ignition.Scope{}
		if p := OfRendered(pools, config.Name); p != nil {
			scope = ScopeOfRole(p.Spec.PoolRole)
		}
		scope.Rendered = true
		return scope
	}
	for _, p := range pools {
		if scope := ScopeOfRole(p.Spec.PoolRole); scope.ControlPlane && Selects(p, config.Labels) {
			return scope
		}
	}
	return ignition.Scope{}
}

// ScopeOfRole returns what the MachineConfigs of a pool, and the extraConfig of its hosts, can have.
func ScopeOfRole(role string) ignition.Scope {
	return ignition.Scope{ControlPlane: role == poolv1.RoleControlPlane}
}

// IsCustom reports whether a role is that of a custom pool, which inherits from worker.
func IsCustom(role string) bool {
	return role != "" && role != poolv1.RoleWorker && !slices.Contains(controlPlaneRoles, role)
}

// SameRole reports whether two pools have the same Cluster and role. A Cluster must not have two such pools.
func SameRole(a, b *poolv1.MachineConfigPool) bool {
	return a.Spec.ClusterName == b.Spec.ClusterName && a.Spec.PoolRole == b.Spec.PoolRole
}
