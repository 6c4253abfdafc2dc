package validation

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// NodeLabelRules validates rules for derived labels: their expressions, and that nothing else sets the same
// label. inUse has the keys of such labels, and what uses them. The rules for keys are in the CRD.
func NodeLabelRules(rules []nodev1.NodeLabelRule, inUse map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		at := path.Index(i)
		if user, ok := inUse[rule.Key]; ok {
			errs = append(errs, field.Forbidden(at.Child("key"), rule.Key+": "+user+": use another key"))
		}
		var expressionErr *nodelabels.ExpressionError
		if err := nodelabels.Check(rule.ValueExpression); errors.As(err, &expressionErr) {
			errs = append(errs, field.Invalid(at.Child("valueExpression"), field.OmitValueType{}, expressionErr.Error()))
		} else if err != nil {
			errs = append(errs, field.InternalError(at.Child("valueExpression"), err))
		}
	}
	return errs
}

// labelKeysInUse returns the keys of the labels that a pool sets on its Nodes without rules, and of the labels by which
// other pools select their Nodes.
func labelKeysInUse(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) map[string]string {
	inUse := map[string]string{}
	for _, other := range others {
		other.Spec.Node.Labels = nil
		selected, err := pool.Labels(other)
		if err != nil {
			continue // the error is in the other pool
		}
		for key := range selected {
			inUse[key] = "MachineConfigPool " + other.Name + " selects its Nodes by it"
		}
	}
	own, err := pool.Labels(*p)
	if err != nil {
		return inUse // another rule reports the error
	}
	for key := range own {
		inUse[key] = "spec.nodeSelector or spec.node.labels gives it a value"
	}
	return inUse
}
