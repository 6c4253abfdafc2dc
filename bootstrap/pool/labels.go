package pool

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Labels returns the labels that a pool's Node is registered with: those that its selector asks for, then nodeLabels. A
// selector is registrable when such labels exist: every requirement is a matchLabels entry, Exists (value "" unless
// nodeLabels has one), or In with one value. Anything else is a *NotRegistrableError.
func Labels(p poolv1.MachineConfigPool) (map[string]string, error) {
	selector := WithDefaults(p).Spec.NodeSelector
	refuse := func(path, why string) (map[string]string, error) {
		return nil, &NotRegistrableError{Pool: p.Name, Path: path, Why: why}
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return refuse("spec.nodeSelector", "is empty and matches nothing: leave it out to have the default")
	}

	derived := maps.Clone(selector.MatchLabels)
	if derived == nil {
		derived = map[string]string{}
	}
	exists := map[string]bool{}
	for i, requirement := range selector.MatchExpressions {
		path := fmt.Sprintf("spec.nodeSelector.matchExpressions[%d]", i)
		switch {
		case requirement.Operator == metav1.LabelSelectorOpExists:
			exists[requirement.Key] = true
		case requirement.Operator == metav1.LabelSelectorOpIn && len(requirement.Values) == 1:
			if value, has := derived[requirement.Key]; has && value != requirement.Values[0] {
				return refuse(path, fmt.Sprintf("asks for %s=%s, and another requirement for %[1]s=%[3]s: no Node can have both",
					requirement.Key, requirement.Values[0], value))
			}
			derived[requirement.Key] = requirement.Values[0]
		default:
			return refuse(path, fmt.Sprintf("%s %s %v doesn't say which label a Node must have: "+
				"use matchLabels, Exists, or In with one value", requirement.Key, requirement.Operator, requirement.Values))
		}
	}
	for key := range exists {
		if _, has := derived[key]; !has {
			derived[key] = ""
		}
	}
	maps.Copy(derived, p.Spec.NodeLabels)

	// Whatever the labels are, they must put the Node where it belongs, by the rule that everybody goes by.
	decision, err := Decide(derived, []poolv1.MachineConfigPool{p})
	switch {
	case err != nil:
		return nil, err
	case decision.ControlPlane:
		return refuse("spec", "its labels would make its Nodes a control plane: select and set other labels")
	case decision.Role != p.Spec.Role:
		return refuse("spec.nodeLabels", "with these labels a Node is not in the pool: "+
			"nodeLabels must not change what nodeSelector asks for")
	}
	return derived, nil
}
