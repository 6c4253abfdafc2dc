package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// hostUpdate is an update of the host, or a repair: an update from a configuration to the same one.
type hostUpdate struct {
	before, after *target
	plan          update.Plan
	// forced means that everything is applied again, and that what was changed by hand is overwritten.
	forced bool
	// drift is what differed from the configuration before the update, as far as it counts: everything if the update is
	// forced, and otherwise the operating system.
	drift []update.Drift
	// stays reports whether a repair leaves a path as it is. It is nil if everything is applied.
	stays func(name string) bool
}

// newUpdate plans an update that begins in a boot, "" for one that reboots only for changes. It is forced if the
// assignment says so, or if it is a repair.
func newUpdate(before, after *target, boot string, drift []update.Drift, can update.Capabilities) *hostUpdate {
	u := &hostUpdate{before: before, after: after}
	u.forced = before.revision == after.revision || u.isAdoption() || after.Force != "" && after.Force != before.Force
	if u.isAdoption() {
		before = &target{Assignment: before.Assignment, revision: before.revision, config: after.config.Found(drift)}
	}
	var overwritten []update.Drift
	if u.forced {
		overwritten = drift
	}
	wanted := after.config
	wanted.Restart = after.RestartSince(before.Assignment, boot)
	u.plan = update.New(before.config, wanted, after.Policy, can, overwritten...)
	u.drift = without(drift, func(d update.Drift) bool { return !u.forced && d.Kind != update.DriftOS })
	found := before.config.AsFound(u.drift)
	switch {
	case !u.forced || !u.plan.IsPossible():
	case u.isAdoption(): // executors record what the host had
		u.plan.Operations = update.Desired(after.config)
	default:
		u.plan.Operations = withAll(keepEnablement(u.plan.Operations, before.config), update.Desired(after.config))
	}
	for i, operation := range u.plan.Operations {
		if operation.Kind == update.ChangeOS { // if it is undone, the host runs again what it ran before
			u.plan.Operations[i].Before.OS = &found.OS
		}
	}
	return u
}

// isAdoption reports whether an update is the first one of a host that Poolboot did not boot. Its drift is how the
// host differs from the configuration after the update, and what the host has already causes no action.
func isAdoption(before, after *target) bool {
	return before.Config.IsAsFound() && !after.Config.IsAsFound()
}

func (u *hostUpdate) isAdoption() bool { return isAdoption(u.before, u.after) }

// keepEnablement returns operations in which units that a configuration enables or disables are so before, also if they
// were changed by hand: how they were without Poolboot is not what somebody made of them.
func keepEnablement(operations []update.Operation, before update.Config) []update.Operation {
	operations = slices.Clone(operations)
	for i := range operations {
		for _, unit := range before.Ignition.Systemd.Units {
			if operations[i].Kind == update.ChangeEnablement && operations[i].Name == unit.Name && operations[i].Before.Enablement == update.Preset {
				operations[i].Before.Enablement = enablementOf(unit)
			}
		}
	}
	return operations
}

// without returns the entries that are not omitted, in a new slice.
func without[T any](entries []T, omit func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(entries), omit)
}

// withAll adds the operations that lead to the whole configuration. They undo nothing: the configuration before the
// update has their states, too.
func withAll(operations, all []update.Operation) []update.Operation {
	result := make([]update.Operation, 0, len(all))
	for _, operation := range all {
		i := slices.IndexFunc(operations, func(o update.Operation) bool { return o.Kind == operation.Kind && o.Name == operation.Name })
		if i < 0 && operation.Kind != update.ChangeOS && operation.Kind != update.ChangePath {
			operation.Before = operation.After
			result = append(result, operation)
		}
	}
	// Accounts exist before their files, and units are enabled after them.
	first := slices.IndexFunc(result, func(o update.Operation) bool { return o.Kind != update.ChangeUser && o.Kind != update.ChangeGroup })
	if first < 0 {
		first = len(result)
	}
	return slices.Concat(result[:first], operations, result[first:])
}

// pathChanges returns the changes of files of an update.
func (a *Agent) pathChanges(u *hostUpdate, host hosttree.System) ([]hosttree.Change, error) {
	if !u.forced {
		return pathChanges(u.plan.Operations, hosttree.New(u.after.config.Ignition), host)
	}
	tree, err := treeOn(u.after, host)
	if err != nil {
		return nil, err
	}
	changes, err := a.Files.ChangesTo(tree)
	if u.stays != nil {
		changes = slices.DeleteFunc(changes, func(change hosttree.Change) bool { return u.stays(change.Path) })
	}
	return changes, err
}

// overwrites reports whether an update overwrites what was changed by hand.
func (u *hostUpdate) overwrites() bool { return u.forced || u.after.RepairsDrift }

// check returns a *hostfiles.CheckError if the files can't be changed. Users and groups that the update creates do not
// exist yet, so it assumes some.
func (a *Agent) check(ctx context.Context, u *hostUpdate) error {
	host, err := a.host(ctx)
	if err != nil {
		return err
	}
	for _, operation := range u.plan.Operations {
		if user := operation.After.User; user != nil {
			assumeUser(host, *user)
		}
		if group := operation.After.Group; group != nil {
			assumeGroup(host, group.Name)
		}
	}
	changes, err := a.pathChanges(u, host)
	if err != nil {
		return err
	}
	return a.Files.Check(changes, u.overwrites())
}

// assumeUser adds a user that does not exist yet to the accounts of a host, with its group.
func assumeUser(host hosttree.System, user types.PasswdUser) {
	if _, exists := host.Users[user.Name]; !exists {
		host.Users[user.Name] = hosttree.Account{Home: ptr.Deref(user.HomeDir, "/home/"+user.Name)}
		assumeGroup(host, user.Name)
	}
}

// assumeGroup adds a group that does not exist yet to the accounts of a host.
func assumeGroup(host hosttree.System, name string) {
	if _, exists := host.Groups[name]; !exists {
		host.Groups[name] = 0
	}
}

// reason describes the update for people. Files of Poolboot that do nothing are part of it only if nothing else is.
func (u *hostUpdate) reason() string {
	var parts, own []string
	for _, change := range u.plan.Changes {
		actions := update.Summary(change.Actions)
		to := &parts
		if ignition.IsOwnFile(change.Name) && actions == string(update.None) {
			to = &own
		}
		*to = append(*to, change.String()+" ("+actions+": "+change.Reason+")")
	}
	if len(parts) == 0 {
		parts = own
	}
	if len(parts) == 0 {
		parts = []string{"no entry of the configuration changes"}
	}
	what := "update to "
	if u.isRepair() {
		what = "repair of "
	}
	return what + u.after.Config.Name + ": " + strings.Join(parts, "; ")
}

// whatChanged names the first entries that the update changed, without Poolboot's own, for the reason why it failed.
func (u *hostUpdate) whatChanged() string {
	var names []string
	for _, change := range u.plan.Changes {
		if !ignition.IsOwnFile(change.Name) {
			names = append(names, change.String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; the update changed " + excerpt.List(maxUnits, names)
}

// obstacles says why the update is not possible.
func (u *hostUpdate) obstacles() string {
	var parts []string
	for _, obstacle := range u.plan.Obstacles {
		parts = append(parts, obstacle.String())
	}
	return "the host can't change to " + u.after.Config.Name + ": " + strings.Join(parts, "; ")
}

// isRepair reports whether the configuration stays the same.
func (u *hostUpdate) isRepair() bool { return u.before.revision == u.after.revision }
