package rollout

import (
	"cmp"

	"sigs.k8s.io/cluster-api/util/conditions"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// maxMisfits is how many of the objects are named because of which a pool renders something else than it hands out.
const maxMisfits = 10

// DescribeMisfits names the objects because of which a pool renders something else than spec.configurationName, as
// pool.FindMisfits returns them, and says what to do about them.
func DescribeMisfits(p *poolv1.MachineConfigPool, misfits []pool.Misfit, isKnown bool) string {
	resume := "run " + Command("resume", p) + " to hand out what it renders"
	switch {
	case !isKnown:
		return "which MachineConfigs no longer fit is not known: compare the changes that " + Command("history", p) + " lists, change or revert them, then " + resume
	case len(misfits) == 0:
		return "all MachineConfigs fit, and Poolboot renders them in another way since its upgrade: " + resume
	}
	names := make([]string, len(misfits))
	for i, m := range misfits {
		names[i] = m.String()
	}
	return "what no longer fits is " + excerpt.List(maxMisfits, names) + ": change or revert that, then " + resume
}

// TargetOf returns the rendered config that all hosts of a pool are to run, as its spec and status say, also while it
// is paused: what spec.configurationName names, or what the pool renders.
func TargetOf(p *poolv1.MachineConfigPool) string {
	c := conditions.Get(p, poolv1.PinnedCondition)
	switch isInvalid := c != nil && c.Reason == poolv1.PinnedConfigurationInvalidReason && c.ObservedGeneration == p.Generation; {
	case isInvalid:
		return p.Status.Configuration.Name
	case p.Spec.ConfigurationName != "":
		return p.Spec.ConfigurationName
	}
	return cmp.Or(p.Status.RenderedConfiguration, p.Status.Configuration.Name)
}

// DescribePin says that a pool hands out what spec.configurationName names, or why not, as its condition does. It
// returns "" for any other pool.
func DescribePin(p *poolv1.MachineConfigPool) string {
	switch c := conditions.Get(p, poolv1.PinnedCondition); {
	case p.Spec.ConfigurationName == "":
		return ""
	case c == nil || c.ObservedGeneration != p.Generation:
		return "the pool is to hand out " + p.Spec.ConfigurationName + " (spec.configurationName), which its status does not say yet"
	default:
		return c.Message
	}
}
