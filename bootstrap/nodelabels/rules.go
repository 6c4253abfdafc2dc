package nodelabels

import (
	"k8s.io/klog/v2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Rules are the rules in a field of an object.
type Rules struct {
	// From names the object and the field, for example "MachineConfigPool metal/infra spec.node.labelRules".
	From string
	// Rules are the value of the field.
	Rules []nodev1.NodeLabelRule
}

// OfPool returns the rules of a pool.
func OfPool(p *poolv1.MachineConfigPool) Rules {
	return Rules{From: "MachineConfigPool " + klog.KObj(p).String() + " spec.node.labelRules", Rules: p.Spec.Node.LabelRules}
}

// OfConfig returns the rules of a PoolbootConfig.
func OfConfig(c *bootstrapv1.PoolbootConfig) Rules {
	return Rules{From: "PoolbootConfig " + klog.KObj(c).String() + " spec.node.labelRules", Rules: c.Spec.Node.LabelRules}
}

// OfTemplate returns the rules of the PoolbootConfigs that are created from a template.
func OfTemplate(t *bootstrapv1.PoolbootConfigTemplate) Rules {
	return Rules{From: "PoolbootConfigTemplate " + klog.KObj(t).String() + " spec.template.spec.node.labelRules", Rules: t.Spec.Template.Spec.Node.LabelRules}
}
