package pool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Labels returns the labels that a pool's Nodes are registered with: those that follow from its selector, then
// node.labels. A selector is registrable if the labels that follow from its positive requirements (matchLabels, In,
// Exists) satisfy all of it, including the negative ones (NotIn, DoesNotExist). If several values are allowed for a
// label, node.labels must set one of them. A label that must only exist is empty unless node.labels sets it. Anything
// else is a *NotRegistrableError. Nodes of the control plane are adopted with their role labels, so they only get
// node.labels.
func Labels(p poolv1.MachineConfigPool) (map[string]string, error) {
	if p.Spec.PoolRole == poolv1.RoleControlPlane {
		return maps.Clone(p.Spec.Node.Labels), nil
	}
	selector := NodeSelector(p)
	refuse := func(path, why string, args ...any) (map[string]string, error) {
		return nil, &NotRegistrableError{Pool: p.Name, Path: path, Why: fmt.Sprintf(why, args...)}
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return refuse("spec.nodeSelector", `is empty and would match nothing: set %s: "" in its matchLabels`, poolv1.NodeRoleLabelPrefix+p.Spec.PoolRole)
	}
	if _, err := nodeSelector(p); err != nil {
		return nil, err
	}

	derived := map[string]string{}
	allowed := map[string][]string{}
	positive := slices.DeleteFunc(requirementsOf(selector), requirement.isNegative)
	if len(positive) == 0 {
		only := requirementsOf(selector)[0]
		return refuse(only.path, "%s only excludes labels: add a label that a Node must have, by matchLabels, Exists or In", only)
	}
	for _, t := range positive {
		if t.Operator == metav1.LabelSelectorOpExists {
			continue
		}
		values, others := t.Values, allowed[t.Key]
		if others != nil {
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !slices.Contains(others, v) })
		}
		if len(values) == 0 {
			return refuse(t.path, "requires %s, and another requirement requires %s: no Node can have both", t, requirement{LabelSelectorRequirement: metav1.LabelSelectorRequirement{
				Key: t.Key, Operator: metav1.LabelSelectorOpIn, Values: others}})
		}
		allowed[t.Key] = values
	}
	for _, t := range positive {
		set, isSet := p.Spec.Node.Labels[t.Key]
		switch values := allowed[t.Key]; {
		case len(values) == 1:
			derived[t.Key] = values[0]
		case isSet:
			derived[t.Key] = set
		case len(values) > 1:
			return refuse(t.path, "%s allows several values, and a Node can be registered with only one: "+
				"set %s in spec.node.labels to one of %s, or use matchLabels", t, t.Key, strings.Join(values, ", "))
		default:
			derived[t.Key] = ""
		}
	}
	maps.Copy(derived, p.Spec.Node.Labels)
	if rejected := FindRejection(p, derived); rejected != nil {
		value, has := p.Spec.Node.Labels[rejected.Key]
		if !has {
			return refuse(rejected.Path, "%s contradicts %s=%s, which follows from the other requirements: set %[2]s in spec.node.labels to an allowed value, or change one of the requirements",
				rejected.Requirement, rejected.Key, derived[rejected.Key])
		}
		return refuse("spec.node.labels", "with %s=%s a Node is not in the pool, because %s requires %s: they must not contradict nodeSelector",
			rejected.Key, value, rejected.Path, rejected.Requirement)
	}

	// In any case, Decide must put a Node with these labels in the pool.
	decision, err := Decide(derived, []poolv1.MachineConfigPool{p})
	switch {
	case err != nil:
		return nil, err
	case decision.ControlPlane:
		return refuse("spec", "its labels would make its Nodes a control plane: select and set other labels")
	case decision.Role != p.Spec.PoolRole:
		return refuse("spec.node.labels", "with these labels a Node is not in the pool: they must not contradict nodeSelector")
	}
	return derived, nil
}
