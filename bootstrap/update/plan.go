package update

import "slices"

// Plan is how a running host changes from one configuration to another.
type Plan struct {
	// Changes are the entries that differ, each with its actions, in a fixed order.
	Changes []Difference
	// Obstacles are what makes the update impossible. If there are any, the plan has no operations and no actions, and
	// nothing is changed on the host.
	Obstacles []Obstacle
	// Outdated are what the host does not get, because it keeps its disks.
	Outdated []Item
	// Operations change the host, in this order. Another order of units is no change, but can change the order of their
	// presets.
	Operations []Operation
	// Steps are what the host does around the operations.
	Steps
	// Undo are the steps around the operations that undo the update.
	Undo Steps
}

// New returns the plan for a host with these capabilities. What drifted on the host from the configuration before
// changes also if it is the same in both configurations.
func New(before, after Config, policy Policy, can Capabilities, drift ...Drift) Plan {
	var outdated []Item
	if policy.KeepsDisks {
		after, outdated = after.KeepDisks(before)
	}
	before = before.AsFound(drift)
	paths := pathsOf(drift)
	onHost := newDiffering(paths)
	before.Ignition.Systemd.Units = onHost.units(before.Ignition.Systemd.Units)
	plan := Plan{Changes: findChanges(before, after, policy, onHost), Outdated: outdated}
	plan.Obstacles = append(findObstacles(before, after, onHost), missingTools(plan.Changes, can)...)
	if plan.IsPossible() {
		plan.Operations = Operations(before, after, paths...)
		plan.Changes, plan.Steps, plan.Undo = findSteps(before, after, plan.Changes)
	}
	return plan
}

// Desired returns the operations that lead any host to a configuration. The states after them hold on every host with
// the configuration, and running them corrects a host that differs. Like every update, they change no disks.
func Desired(config Config) []Operation {
	return Operations(Config{OS: OperatingSystem{KernelType: config.OS.KernelType}}, config)
}

// IsPossible reports whether a running host can change to the configuration.
func (p *Plan) IsPossible() bool { return len(p.Obstacles) == 0 }

// Drains reports whether the Node is drained before the host changes.
func (p *Plan) Drains() bool {
	return p.Reboots() || slices.ContainsFunc(p.Actions, isOfType(Drain))
}

// Reboots reports whether the host reboots.
func (p *Plan) Reboots() bool { return slices.ContainsFunc(p.Actions, isOfType(Reboot)) }
