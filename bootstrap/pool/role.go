package pool

import (
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// OfRole returns the pool of a Cluster that has a role: a *NotFoundError when there is none, a *DuplicateError when
// there are several. None of several is picked: which one is older, for example, changes when clusterctl moves them.
// Only one that is being deleted makes room for its replacement.
func OfRole(pools []poolv1.MachineConfigPool, role string) (*poolv1.MachineConfigPool, error) {
	var found, leaving []*poolv1.MachineConfigPool
	for i := range pools {
		switch p := &pools[i]; {
		case p.Spec.PoolRole != role:
		case p.DeletionTimestamp.IsZero():
			found = append(found, p)
		default:
			leaving = append(leaving, p)
		}
	}
	if len(found) == 0 {
		found = leaving
	}
	switch len(found) {
	case 0:
		return nil, &NotFoundError{Role: role}
	case 1:
		return found[0], nil
	}
	duplicate := &DuplicateError{Role: role}
	for _, p := range found {
		duplicate.Pools = append(duplicate.Pools, p.Name)
	}
	slices.Sort(duplicate.Pools)
	return nil, duplicate
}

// OfRendered returns the pool that a rendered config was made for, by the config's name; nil when that pool does not
// exist, or the name is not a rendered config's.
func OfRendered(pools []poolv1.MachineConfigPool, rendered string) *poolv1.MachineConfigPool {
	name, is := strings.CutPrefix(rendered, poolv1.RenderedNamePrefix)
	if hash := strings.LastIndexByte(name, '-'); is && hash > 0 {
		name = name[:hash]
	} else {
		return nil
	}
	for i := range pools {
		if pools[i].Name == name {
			return &pools[i]
		}
	}
	return nil
}

// IsCustom says whether a role is that of a custom pool, one which inherits from worker.
func IsCustom(role string) bool {
	return role != "" && role != poolv1.RoleWorker && !slices.Contains(controlPlaneRoles, role)
}

// SameRole says whether two pools have one role, and so can't both be a Cluster's.
func SameRole(a, b *poolv1.MachineConfigPool) bool {
	return a.Spec.ClusterName == b.Spec.ClusterName && a.Spec.PoolRole == b.Spec.PoolRole
}
