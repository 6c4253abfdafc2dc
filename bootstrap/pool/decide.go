package pool

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Decision is the pool that a set of labels belongs to.
type Decision struct {
	// Role is the pool's role. It is empty if a Node with these labels is in no pool.
	Role string
	// ControlPlane is true if the labels are those of a control plane. Such a Node is only in the pool control-plane.
	ControlPlane bool
	// Unsupported are the roles of the custom pools that select a control plane's labels, in order. A control plane
	// can't be in them.
	Unsupported []string
}

// controlPlaneRoles are the roles of a control plane. A Node with the role label of one is a control plane, regardless
// of the label's value.
var controlPlaneRoles = []string{poolv1.RoleControlPlane, "master"}

// Decide returns the pool of a cluster to which a set of labels belongs. No other code decides that.
//
// Windows Nodes are in no pool. A control plane is in the pool control-plane if there is one, and in no other; custom
// pools that select its labels are returned as Unsupported. For other labels, a matching custom pool takes precedence
// over worker, and several matching custom pools are a *ConflictError. If no custom pool matches, it is worker if that
// matches, otherwise no pool. A malformed selector is a *SelectorError.
func Decide(nodeLabels map[string]string, pools []poolv1.MachineConfigPool) (Decision, error) {
	if nodeLabels[corev1.LabelOSStable] == string(corev1.Windows) {
		return Decision{}, nil
	}
	custom, worker, err := matchingRoles(nodeLabels, pools)
	if err != nil {
		return Decision{}, err
	}
	switch {
	case IsControlPlane(nodeLabels):
		decision := Decision{ControlPlane: true, Unsupported: custom}
		if slices.ContainsFunc(pools, IsOfControlPlane) {
			decision.Role = poolv1.RoleControlPlane
		}
		return decision, nil
	case len(custom) > 1:
		return Decision{}, &ConflictError{Roles: custom}
	case len(custom) == 1:
		return Decision{Role: custom[0]}, nil
	case worker:
		return Decision{Role: poolv1.RoleWorker}, nil
	}
	return Decision{}, nil
}

// matchingRoles returns the roles of the custom pools that select the labels, in order, and whether a worker pool
// selects them.
func matchingRoles(nodeLabels map[string]string, pools []poolv1.MachineConfigPool) (custom []string, worker bool, err error) {
	for _, p := range pools {
		selector, err := nodeSelector(p)
		switch {
		case err != nil:
			return nil, false, err
		case !selector.Matches(labels.Set(nodeLabels)), slices.Contains(controlPlaneRoles, p.Spec.PoolRole):
		case p.Spec.PoolRole == poolv1.RoleWorker:
			worker = true
		default:
			custom = append(custom, p.Spec.PoolRole)
		}
	}
	slices.Sort(custom)
	return slices.Compact(custom), worker, nil
}

// IsOfControlPlane reports whether a pool is that of the control plane.
func IsOfControlPlane(p poolv1.MachineConfigPool) bool {
	return p.Spec.PoolRole == poolv1.RoleControlPlane
}

// IsControlPlane reports whether a Node is one of the control plane, by labels that a kubelet is not allowed to set.
func IsControlPlane(nodeLabels map[string]string) bool {
	return slices.ContainsFunc(controlPlaneRoles, func(role string) bool {
		_, has := nodeLabels[poolv1.NodeRoleLabelPrefix+role]
		return has
	})
}

// NodeSelector returns the pool's node selector, by default the label node-role.kubernetes.io/<role> with an empty
// value. That of the control plane can have any value.
func NodeSelector(p poolv1.MachineConfigPool) *metav1.LabelSelector {
	switch {
	case p.Spec.NodeSelector != nil:
		return p.Spec.NodeSelector
	case p.Spec.PoolRole == poolv1.RoleControlPlane:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: poolv1.NodeRoleLabelPrefix + poolv1.RoleControlPlane, Operator: metav1.LabelSelectorOpExists,
		}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{poolv1.NodeRoleLabelPrefix + p.Spec.PoolRole: ""}}
}

// SelectorKeys returns the keys of the labels in a pool's node selector, in order. The selector need not be
// registrable.
func SelectorKeys(p poolv1.MachineConfigPool) []string {
	selector := NodeSelector(p)
	keys := slices.Collect(maps.Keys(selector.MatchLabels))
	for _, requirement := range selector.MatchExpressions {
		keys = append(keys, requirement.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
