package update

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Steps are what a host does around operations, in this order: it stops units, changes, runs actions, and starts units.
type Steps struct {
	// Stop are the units that stop before the operations, sorted: those whose files leave the configuration, and those
	// that it masks or enables no longer. The name of a template stands for all its instances. If the host reboots,
	// only those stop that can run as a user whom the operations remove.
	Stop []string
	// Actions are what the host does because of the changes: it drains before everything else, and does the others
	// after the operations, in this order. There is at least one, which can be None. The same action can be there
	// several times, and running it once is enough. No unit is reloaded or restarted that stops.
	Actions []Action
	// Start are the units that start after the actions, sorted: those that the configuration enables, and did not
	// before. A host leaves out those that nothing active wants: they would not start in a boot either. It does the
	// same for units that stopped, if they still exist: the operating system can have them, too. There are none if
	// the host reboots.
	Start []string
}

// kept are the units, without their types, that an update neither stops nor starts because they are enabled or not:
// without them a host can't be updated, is not reachable, or has no Pods. Actions can restart them, and a boot decides.
var kept = []string{
	"containerd", "crio", "docker", "cri-docker", "dbus", "dbus-broker", "systemd-journald", "systemd-logind", "systemd-udevd",
	"NetworkManager", "systemd-networkd", "iscsid", "multipathd",
}

// Types of units that an update stops and starts. Others run nothing themselves, or too much.
var (
	// processTypes can run processes of users, or start what does.
	processTypes   = []string{".service", ".socket", ".timer", ".path"}
	stoppableTypes = append([]string{".mount", ".automount", ".swap"}, processTypes...)
	startableTypes = append([]string{".target"}, stoppableTypes...)
)

// isKept reports whether an update does not stop or start a unit.
func isKept(unit string) bool {
	return unit == ignition.KubeletUnit || strings.HasPrefix(unit, ignition.OwnUnitPrefix) ||
		slices.Contains(kept, strings.TrimSuffix(unit, path.Ext(unit)))
}

// unitState is what a configuration says about a unit.
type unitState struct {
	// hasFile is true if the configuration has its file.
	hasFile, isMasked bool
	// isEnabled is true also if another unit enables it with Also, or a link of the configuration does. isDisabled is
	// true if the configuration says so.
	isEnabled, isDisabled bool
}

// unitStates returns what a configuration says about units.
func unitStates(config ignition.Config) map[string]unitState {
	states := map[string]unitState{}
	set := func(unit string, change func(*unitState)) {
		state := states[unit]
		change(&state)
		states[unit] = state
	}
	for name, entry := range hosttree.New(config) {
		directory, unit := path.Split(name)
		switch directory = path.Clean(directory); {
		case directory == hosttree.UnitDirectory && entry.Type == hosttree.Link && entry.Target == hosttree.MaskTarget:
			set(unit, func(s *unitState) { s.isMasked = true })
		case directory == hosttree.UnitDirectory && entry.Type != hosttree.Directory && entry.Type != hosttree.Unmasked:
			set(unit, func(s *unitState) { s.hasFile = true })
		case path.Dir(directory) == hosttree.UnitDirectory && slices.Contains([]string{".wants", ".requires", ".upholds"}, path.Ext(directory)):
			set(unit, func(s *unitState) { s.isEnabled = true })
		}
	}
	for _, unit := range config.Systemd.Units {
		switch enablementOf(&unit) {
		case Enabled:
			for _, name := range append(ignition.InstallValues(unit, ignition.SettingAlso), enabledAs(unit)) {
				set(name, func(s *unitState) { s.isEnabled = true })
			}
		case Disabled:
			set(unit.Name, func(s *unitState) { s.isDisabled = true })
		}
	}
	return states
}

// enabledAs returns the name of the unit that is enabled: of a template, that is its default instance.
func enabledAs(unit types.Unit) string {
	prefix, suffix, isTemplate := strings.Cut(unit.Name, "@.")
	if instances := ignition.InstallValues(unit, ignition.SettingDefaultInstance); isTemplate && len(instances) > 0 {
		return prefix + "@" + instances[len(instances)-1] + "." + suffix
	}
	return unit.Name
}

// transition is how units differ between two configurations.
type transition struct {
	// removed, masked and disabled are the units that go, and enabled those that come.
	removed, masked, disabled, enabled map[string]bool
}

// newTransition returns how units differ.
func newTransition(before, after ignition.Config) transition {
	t := transition{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	from, to := unitStates(before), unitStates(after)
	all := maps.Clone(from)
	maps.Copy(all, to)
	for unit := range all {
		old, now := from[unit], to[unit]
		isOfImage := !old.hasFile && !now.hasFile
		switch {
		case old.isMasked:
		case now.isMasked:
			t.masked[unit] = true
		case old.hasFile && !now.hasFile:
			t.removed[unit] = true
		case old.isEnabled && !now.isEnabled, now.isDisabled && !old.isDisabled && isOfImage:
			t.disabled[unit] = true
		}
	}
	for unit, now := range to {
		old := from[unit]
		if now.isEnabled && !now.isMasked && (!old.isEnabled || old.isMasked || t.stops(unit)) {
			t.enabled[unit] = true
		}
	}
	return t
}

// isIn reports whether a unit or its template is in a set.
func isIn(set map[string]bool, unit string) bool { return set[unit] || set[hosttree.TemplateOf(unit)] }

// stops reports whether a unit goes.
func (t transition) stops(unit string) bool {
	return isIn(t.removed, unit) || isIn(t.masked, unit) || t.disabled[unit]
}

// selectUnits returns the units that an update can stop or start, sorted.
func selectUnits(units map[string]bool, types []string) (selected []string) {
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		if !isKept(unit) && slices.Contains(types, path.Ext(unit)) {
			selected = append(selected, unit)
		}
	}
	return selected
}

// actions returns actions without those for units that stop, or that start: a unit that starts reads its configuration.
// A unit that is removed and kept can be one of the operating system.
func (t transition) actions(actions []Action) (result []Action) {
	for _, action := range actions {
		switch unit := action.Unit; {
		case action.Type != Reload && action.Type != Restart:
		case isIn(t.masked, unit), t.stops(unit) && !isKept(unit), action.Type == Reload && t.enabled[unit] && !isKept(unit):
			continue
		case isIn(t.removed, unit):
			action.IfExists = true
		}
		result = append(result, action)
	}
	if len(result) == 0 {
		return []Action{{Type: None}}
	}
	return result
}

// withActions returns changes with the actions that remain.
func (t transition) withActions(changes []Difference) []Difference {
	changes = slices.Clone(changes)
	for i := range changes {
		changes[i].Actions = t.actions(changes[i].Actions)
	}
	return changes
}

// steps returns the steps of a host because of changes with the actions that remain.
func (t transition) steps(changes []Difference) Steps {
	s := Steps{Actions: combine(changes)}
	if slices.ContainsFunc(s.Actions, isOfType(Reboot)) {
		s.Stop = selectUnits(t.removed, processTypes)
		return s
	}
	stops, starts := maps.Clone(t.removed), maps.Clone(t.enabled)
	maps.Copy(stops, t.masked)
	maps.Copy(stops, t.disabled)
	s.Stop = selectUnits(stops, stoppableTypes)
	for _, action := range s.Actions {
		if action.Type == Restart {
			delete(starts, action.Unit)
		}
	}
	maps.DeleteFunc(starts, func(unit string, _ bool) bool { return strings.Contains(unit, "@.") })
	s.Start = selectUnits(starts, startableTypes)
	return s
}

// findSteps returns changes with the actions that remain, the steps of a host, and those that undo them. Without a boot
// between both, an undo starts what stopped.
func findSteps(before, after Config, changes []Difference) (_ []Difference, there, back Steps) {
	forward, backward := newTransition(before.Ignition, after.Ignition), newTransition(after.Ignition, before.Ignition)
	undone := backward.withActions(changes)
	changes = forward.withActions(changes)
	there, back = forward.steps(changes), backward.steps(undone)
	if slices.ContainsFunc(there.Actions, isOfType(Reboot)) {
		stopped := map[string]bool{}
		for _, unit := range there.Stop {
			stopped[unit] = true
		}
		starts := maps.Clone(backward.enabled)
		maps.DeleteFunc(starts, func(unit string, _ bool) bool { return !isIn(stopped, unit) || strings.Contains(unit, "@.") })
		back.Start = selectUnits(starts, processTypes)
	}
	return changes, there, back
}
