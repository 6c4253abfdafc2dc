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
	// Role is the pool's role; empty when no pool has a hold on a Node with these labels.
	Role string
	// ControlPlane is true when the labels are those of a control plane.
	ControlPlane bool
	// Unsupported are the roles of the custom pools that a control plane's labels ask for, in order. They have no hold
	// on it.
	Unsupported []string
}

// controlPlaneRoles are the words for a control plane. A Node with the role label of one is a control plane, whatever
// the label's value; a pool of that role, as OpenShift has one, is no custom pool.
var controlPlaneRoles = []string{"control-plane", "master"}

// Decide says which of a cluster's pools a set of labels belongs to. It is the only place where that is decided.
//
// Windows Nodes are unmanaged. A control plane is in no pool; the custom pools that its labels ask for are reported. Of
// the others, one matching custom pool wins over worker; several are a *ConflictError. With no custom pool it is
// worker, if that matches, and else none. A malformed selector is a *SelectorError.
func Decide(nodeLabels map[string]string, pools []poolv1.MachineConfigPool) (Decision, error) {
	if nodeLabels[corev1.LabelOSStable] == string(corev1.Windows) {
		return Decision{}, nil
	}
	custom, worker, err := matching(nodeLabels, pools)
	if err != nil {
		return Decision{}, err
	}
	switch {
	case isControlPlane(nodeLabels):
		return Decision{ControlPlane: true, Unsupported: custom}, nil
	case len(custom) > 1:
		return Decision{}, &ConflictError{Roles: custom}
	case len(custom) == 1:
		return Decision{Role: custom[0]}, nil
	case worker:
		return Decision{Role: poolv1.RoleWorker}, nil
	}
	return Decision{}, nil
}

// matching returns the roles of the custom pools that select the labels, in order, and whether a worker pool does.
func matching(nodeLabels map[string]string, pools []poolv1.MachineConfigPool) (custom []string, worker bool, err error) {
	for _, p := range pools {
		selector, err := nodeSelector(p)
		switch {
		case err != nil:
			return nil, false, err
		case !selector.Matches(labels.Set(nodeLabels)):
		case slices.Contains(controlPlaneRoles, p.Spec.PoolRole):
		case p.Spec.PoolRole == poolv1.RoleWorker:
			worker = true
		default:
			custom = append(custom, p.Spec.PoolRole)
		}
	}
	slices.Sort(custom)
	return slices.Compact(custom), worker, nil
}

func isControlPlane(nodeLabels map[string]string) bool {
	return slices.ContainsFunc(controlPlaneRoles, func(role string) bool {
		_, has := nodeLabels[poolv1.NodeRoleLabelPrefix+role]
		return has
	})
}

// NodeSelector returns the pool's node selector: by default node-role.kubernetes.io/<role>, with an empty value.
func NodeSelector(p poolv1.MachineConfigPool) *metav1.LabelSelector {
	if p.Spec.NodeSelector != nil {
		return p.Spec.NodeSelector
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{poolv1.NodeRoleLabelPrefix + p.Spec.PoolRole: ""}}
}

// SelectorKeys returns the keys of the labels that a pool's node selector asks about, in order, also when no labels can
// be derived from it.
func SelectorKeys(p poolv1.MachineConfigPool) []string {
	selector := NodeSelector(p)
	keys := slices.Collect(maps.Keys(selector.MatchLabels))
	for _, requirement := range selector.MatchExpressions {
		keys = append(keys, requirement.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
