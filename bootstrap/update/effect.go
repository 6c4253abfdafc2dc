package update

import (
	"fmt"
	"slices"
	"strings"

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

// Rebooting is what decides how a host reboots, beside the plan.
type Rebooting struct {
	// Method is that of the pool, and Can what the host can do.
	Method RebootMethod
	Can    Capabilities
	// ByMetal3 is true if Metal3 reboots the host because that applies firmware settings or updates. NotApplied is why
	// the reboot does not apply all that is pending, or "".
	ByMetal3   bool
	NotApplied string
}

// DescribeReboot returns whether the host reboots, how, and because of which entries, and what it does if it need not
// reboot.
func (p *Plan) DescribeReboot(r Rebooting) string {
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
		text := "yes: " + excerpt.List(maxReasons, reasons)
		if how := p.DescribeMethod(r); how != "" {
			text += "; " + how
		}
		return text
	}
	return "no: " + p.Summary()
}

// DescribeMethod returns how the host reboots, "" if it need not, or for a full reboot without anything else to say.
func (p *Plan) DescribeMethod(r Rebooting) string {
	var texts []string
	if !p.Reboots() {
		return ""
	}
	switch why := p.whyPredictedFull(r); {
	case r.ByMetal3:
		texts = append(texts, "by Metal3, which applies pending firmware settings or updates")
	case why != "":
		texts = append(texts, fmt.Sprintf("by %s instead of %s: %s", FullReboot, r.Method, why))
	case r.Method != FullReboot:
		texts = append(texts, "by "+r.Method.String())
	}
	if r.NotApplied != "" {
		texts = append(texts, "pending firmware is not applied: "+r.NotApplied)
	}
	return strings.Join(texts, "; ")
}

// whyPredictedFull returns why a host can't reboot by the method of its pool, as far as that is known before, or "".
func (p *Plan) whyPredictedFull(r Rebooting) string {
	if r.Method == Kexec && r.Can.LacksKexec || r.Method == SoftReboot && r.Can.LacksSoftReboot {
		return "the host reports that it can't"
	}
	return p.WhyFullReboot(r.Method)
}
