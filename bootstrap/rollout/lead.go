package rollout

import (
	"strings"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Lead is how a message of the condition Updated of a host begins. What it has is in other columns of kubectl poolboot
// rollout status too: the Node, and the rendered configs that the host runs and is to run.
type Lead string

// The leads. Those that a reason follows end before ": ", ", and " or ". ".
const (
	LeadRuns           Lead = "Node {node} runs {runs}"
	LeadUnreconcilable Lead = LeadRuns + ", and a running host cannot change to {desired}"
	LeadUndone         Lead = "the update of Node {node} to {desired} failed and was undone, so it runs {runs}"
	LeadUnchanged      Lead = "the update of Node {node} to {desired} failed before it changed anything, so it runs {runs}"
	LeadDraining       Lead = "Node {node} is drained to run {desired}"
	LeadAsking         Lead = "Node {node} waits until it can be away to run {desired}"
	LeadApplying       Lead = "Node {node} is being changed to run {desired}"
	LeadRebooting      Lead = "Node {node} was changed, and its host reboots to run {desired}"
	LeadVerifying      Lead = "Node {node} was changed, and must stay Ready to run {desired}"
)

// leads are all, those that begin as others do before these.
var leads = []Lead{LeadUnreconcilable, LeadRuns, LeadUndone, LeadUnchanged, LeadDraining, LeadAsking, LeadApplying, LeadRebooting, LeadVerifying}

// Of returns the lead of a host.
func (l Lead) Of(node, runs, desired string) string {
	return strings.NewReplacer("{node}", node, "{runs}", runs, "{desired}", desired).Replace(string(l))
}

// WithoutLead returns what follows the lead of a message of a host, or the message if nothing does.
func WithoutLead(message, node, runs, desired string) string {
	for _, l := range leads {
		for _, to := range []string{desired, runs} { // a host that undoes its update returns to what it runs
			rest, has := strings.CutPrefix(message, l.Of(node, runs, to))
			for _, separator := range []string{": ", ", and ", ". "} {
				if why, follows := strings.CutPrefix(rest, separator); has && follows {
					return why
				}
			}
		}
	}
	return message
}

// NextOf says to what a host is updated next that runs a rendered config: the pool can only restart it, or have other
// settings.
func NextOf(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, runs string) string {
	if name := p.Status.Configuration.Name; name != runs {
		return name
	}
	switch pool.RestartOf(p, config, false) {
	case update.RestartKernel:
		return "reboot, which its operating system needs"
	case update.RestartHost, update.RestartKubelet:
		return "restart (spec.updates.restart.id " + p.Spec.Updates.Restart.ID + ")"
	}
	return "other settings of MachineConfigPool " + p.Name
}
