package admission

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// labelsOfOthers are labels of Nodes that no rule may set, and who sets them.
var labelsOfOthers = map[string]string{
	poolv1.NodePoolLabel:       "Poolboot sets it to the role of the Node's pool",
	poolv1.NodeMetal3UUIDLabel: "Poolboot sets it to the UID of the Node's BareMetalHost",
	corev1.LabelHostname:       "the kubelet sets it to the Node's name",
	corev1.LabelOSStable:       "the kubelet sets it",
	corev1.LabelArchStable:     "the kubelet sets it",
}

// validateNodeLabelRules checks rules that make Node labels out of facts of hosts. taken are keys that something else of the same
// Node sets, and what.
func validateNodeLabelRules(rules []nodev1.NodeLabelRule, taken map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		at := path.Index(i)
		for _, problem := range validation.IsQualifiedName(rule.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), rule.Key, problem))
		}
		if strings.HasPrefix(rule.Key, poolv1.NodeRoleLabelPrefix) {
			errs = append(errs, field.Forbidden(at.Child("key"), rule.Key+" is a role, by which pools select their Nodes, and a host's facts must not move it "+
				"into another pool: use another key"))
		}
		for _, of := range []map[string]string{labelsOfOthers, taken} {
			if who, is := of[rule.Key]; is {
				errs = append(errs, field.Forbidden(at.Child("key"), rule.Key+": "+who+": use another key"))
			}
		}
		var mistake *nodelabels.ExpressionError
		if err := nodelabels.Check(rule.ValueExpression); errors.As(err, &mistake) {
			errs = append(errs, field.Invalid(at.Child("valueExpression"), field.OmitValueType{}, mistake.Error()))
		} else if err != nil {
			errs = append(errs, field.InternalError(at.Child("valueExpression"), err))
		}
	}
	return errs
}

// takenByPools are the keys of the labels that a pool puts on its Nodes anyway, and of those by which others select theirs.
func takenByPools(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) map[string]string {
	taken := map[string]string{}
	for _, other := range others {
		other.Spec.NodeLabels = nil
		selected, err := pool.Labels(other)
		if err != nil {
			continue // that pool's own mistake
		}
		for key := range selected {
			taken[key] = "MachineConfigPool " + other.Name + " selects its Nodes by it"
		}
	}
	own, err := pool.Labels(*p)
	if err != nil {
		return taken // said elsewhere
	}
	for key := range own {
		taken[key] = "spec.nodeSelector or spec.nodeLabels gives it a value"
	}
	return taken
}

// takenByLabels are the keys of spec.nodeLabels.
func takenByLabels(nodeLabels map[string]string) map[string]string {
	taken := map[string]string{}
	for key := range nodeLabels {
		taken[key] = "spec.nodeLabels gives it a value"
	}
	return taken
}
