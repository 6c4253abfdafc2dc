package update

import (
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// Effect is the strongest thing that happens to a running host when it changes to another configuration.
type Effect string

// Effects, the weakest first.
const (
	// EffectNone means that only files and other entries change.
	EffectNone Effect = "None"
	// EffectReload means that units or systemd itself reload.
	EffectReload Effect = "Reload"
	// EffectRestart means that units stop, start or restart, or that the Node is drained without a reboot.
	EffectRestart Effect = "Restart"
	// EffectReboot means that the Node is drained and the host reboots.
	EffectReboot Effect = "Reboot"
	// EffectReplace means that a running host can't change to the configuration, and must be replaced.
	EffectReplace Effect = "Replace"
)

// Effect returns the effect of the plan.
func (p *Plan) Effect() Effect {
	has := func(types ...ActionType) bool {
		return slices.ContainsFunc(p.Actions, func(a Action) bool { return slices.Contains(types, a.Type) })
	}
	switch {
	case !p.IsPossible():
		return EffectReplace
	case p.Reboots():
		return EffectReboot
	case has(Restart, Drain), len(p.Stop)+len(p.Start) > 0:
		return EffectRestart
	case has(Reload, DaemonReload):
		return EffectReload
	}
	return EffectNone
}

// maxReasons is the maximum number of entries that are named as the reason for a reboot.
const maxReasons = 5

// DescribeReboot returns whether the host reboots, because of which entries, and what it does if it need not reboot.
func (p *Plan) DescribeReboot() string {
	var reasons []string
	for _, c := range p.Changes {
		if slices.ContainsFunc(c.Actions, isOfType(Reboot)) {
			reasons = append(reasons, c.String())
		}
	}
	switch {
	case !p.IsPossible():
		return "is not enough: a running host can't apply the config"
	case len(p.Changes) == 0 && p.Effect() == EffectNone:
		return "no: nothing changes on the host"
	case len(reasons) > 0:
		return "yes: " + excerpt.List(maxReasons, reasons)
	}
	return "no: " + p.Summary()
}
