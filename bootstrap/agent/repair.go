package agent

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// repair corrects what differs, if the pool says so, as far as that needs neither a drain nor a reboot. It reports why
// the rest stays; what differs, and what to do, is known without that.
func (a *Agent) repair(ctx context.Context, node Node) (time.Duration, error) {
	report := func(why string) {
		a.report.set(a.journal.Current, agentv1.Degraded, strings.TrimSpace(why+"\n"+a.leftOverText()))
	}
	isLeft := func(d update.Drift) bool { return d.Kind == update.DriftNotRestored }
	switch {
	case !slices.ContainsFunc(a.current.drift, func(d update.Drift) bool { return !isLeft(d) }):
		report("")
		return a.untilCheck(), nil
	case !slices.ContainsFunc(a.current.drift, update.Drift.IsRepairable):
		report("What is not Poolboot's stays: remove it on the host. Correct there, too, what can't be read.")
		return a.untilCheck(), nil
	case !a.current.repairs:
		report("")
		return a.untilCheck(), nil
	}
	t, err := a.load(a.journal.Current)
	if err != nil {
		return now, err
	}
	u := newRepair(t, a.current.drift, a.Capabilities)
	if len(u.drift) == 0 {
		u = newUpdate(t, t, "", a.current.drift, a.Capabilities)
	}
	wait := a.repairWait()
	switch {
	case !u.plan.IsPossible():
		report("It can't be repaired: " + u.obstacles())
		return a.untilCheck(), nil
	case u.plan.Drains():
		report("A repair needs a drain: " + u.reason())
		return a.untilCheck(), nil
	case wait > 0:
		report("It was repaired before, and differs again: find the program that changes it. The agent repairs it again after a pause that doubles each time, from a minute to an hour.")
		return min(wait, a.untilCheck()), nil
	}
	var check *hostfiles.CheckError
	switch err := a.check(ctx, u); {
	case errors.As(err, &check):
		report("It can't be repaired: " + check.Error())
		return a.untilCheck(), nil
	case err != nil:
		return now, err
	}
	a.repairedAt, a.repairs = a.Clock.Uptime(), a.repairs+1
	return a.start(ctx, node, u)
}

// repairWait returns the time until the next repair can begin. Each repair soon after another one doubles it, up to the
// time between two full checks: a program that changes an entry again and again has the host repaired once an hour.
func (a *Agent) repairWait() time.Duration {
	if a.repairs == 0 {
		return 0
	}
	interval := min(checkInterval, repairInterval<<min(a.repairs-1, 10))
	passed := a.Clock.Uptime() - a.repairedAt
	if passed >= interval+checkInterval { // the last one lasted
		a.repairs = 0
	}
	return interval - passed
}

// newRepair returns the repair of those differences whose entries need neither a drain nor a reboot. Everything else
// stays as it is.
func newRepair(t *target, drift []update.Drift, can update.Capabilities) *hostUpdate {
	stays := disruptive(t)
	u := newUpdate(t, t, "", without(drift, func(d update.Drift) bool {
		return !d.IsPath() || stays(d.Name)
	}), can)
	u.stays = stays
	u.plan.Operations = without(u.plan.Operations, func(operation update.Operation) bool {
		return operation.Kind == update.ChangeKernelArguments || operation.Kind == update.ChangeEnablement && !slices.ContainsFunc(u.drift, func(d update.Drift) bool {
			return hosttree.UnitOf(d.Name) == operation.Name
		})
	})
	return u
}

// disruptive returns a function that reports whether a change of a path of the configuration needs a drain or a reboot.
func disruptive(t *target) func(name string) bool {
	entries := map[update.Item]bool{}
	policy := t.Policy
	policy.KeepsDisks = false // every entry of the configuration counts
	all := update.New(update.Config{}, t.config, policy, update.AllCapabilities)
	for _, change := range all.Changes {
		if change.Kind != update.KindUnit {
			change.Name = path.Clean(change.Name)
		}
		entries[change.Item] = slices.ContainsFunc(change.Actions, func(action update.Action) bool {
			return action.Type == update.Drain || action.Type == update.Reboot
		})
	}
	return func(name string) bool {
		if unit := hosttree.UnitOf(name); unit != "" && entries[update.Item{Kind: update.KindUnit, Name: unit}] {
			return true
		}
		for _, kind := range []update.Kind{update.KindFile, update.KindDirectory, update.KindLink} {
			if entries[update.Item{Kind: kind, Name: name}] {
				return true
			}
		}
		return false
	}
}
