package admission

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// validateNodeLabelRules checks rules that make Node labels out of facts of hosts: their expressions, and that nothing
// else gives the same Node a label that they give it. taken are the keys of such labels, and what does. What a key may
// be is in the CRD.
func validateNodeLabelRules(rules []nodev1.NodeLabelRule, taken map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		at := path.Index(i)
		if what, is := taken[rule.Key]; is {
			errs = append(errs, field.Forbidden(at.Child("key"), rule.Key+": "+what+": use another key"))
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

// takenByPools are the keys of the labels that a pool puts on its Nodes anyway, and of those by which others select
// theirs.
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
