package update

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// findOperations returns what changes a host, in a safe order: owners exist while their files do; a unit is disabled
// while its old file is there, and enabled when the new one is; what becomes active with the next boot is last.
func findOperations(before, after Config) []Operation {
	from, to := before.Ignition, after.Ignition
	paths := hosttree.Changes(hosttree.New(from), hosttree.New(to))
	removed, written := pathOperations(paths)
	disabled, enabled := enablementOperations(from.Systemd.Units, to.Systemd.Units, paths)
	created, deleted := userOperations(from.Passwd, to.Passwd)
	return slices.Concat(created, disabled, removed, written, enabled, deleted, osOperations(before.OS, after.OS),
		kernelArgumentOperations(before.KernelArguments, after.KernelArguments))
}

// pathOperations returns the operations that remove paths, what is in a directory before the directory, and those that
// write paths, a directory before what is in it, and hard links after the files that they lead to. It leaves out files
// that are only appended to: their contents depend on the host, and findObstacles refuses to change them.
func pathOperations(paths []hosttree.Change) (removed, written []Operation) {
	for _, change := range paths {
		operation := Operation{Kind: ChangePath, Name: change.Path, Before: State{Path: change.From}, After: State{Path: change.To}}
		switch {
		case change.To == nil:
			removed = append(removed, operation)
		case !change.To.Appends:
			written = append(written, operation)
		}
	}
	slices.SortFunc(removed, func(a, b Operation) int { return hosttree.CompareDepth(b.Name, a.Name) })
	slices.SortFunc(written, func(a, b Operation) int {
		return cmp.Or(compareHardLinks(a, b), hosttree.CompareDepth(a.Name, b.Name))
	})
	return removed, written
}

// enablementOperations returns the operations that disable units before their files change, because the links that
// enable a unit follow from its files, and those that enable units or apply the presets after that.
//
// To disable a unit also disables the instances of a template, and what the unit names with Also. If these units are to
// stay enabled, they are enabled again at the end, and when the operations are undone.
func enablementOperations(before, after []types.Unit, paths []hosttree.Change) (disabled, enabled []Operation) {
	with := map[string]bool{} // disabled with others
	paths = slices.DeleteFunc(slices.Clone(paths), func(c hosttree.Change) bool { return !strings.HasPrefix(c.Path, hosttree.UnitDirectory+"/") })
	for old, now := range pairs(before, after) {
		name := keyOf(old, now)
		from, to := enablementOf(old), enablementOf(now)
		installs := installChanges(name, paths)
		hadFile := slices.ContainsFunc(installs, func(c hosttree.Change) bool { return c.From != nil && c.From.Type == hosttree.File })
		hasFile := slices.ContainsFunc(installs, func(c hosttree.Change) bool { return c.To != nil && c.To.Type == hosttree.File })
		if from != Disabled && (to == Disabled || hadFile || hasFile && from == Enabled) {
			disabled = append(disabled, newEnablement(name, from, Disabled))
			from = Disabled
		}
		if to != Disabled && (from != to || to == Preset && hasFile) {
			enabled = append(enabled, newEnablement(name, from, to))
		}
	}
	for _, operation := range slices.Concat(disabled, enabled) { // each disables its unit, or does so when it is undone
		for _, unit := range disabledWith(operation.Name, before, after) {
			with[unit] = true
		}
	}
	slices.Reverse(disabled) // an instance after its template also when they are undone
	again := func(units []types.Unit, operations []Operation) (result []Operation) {
		for _, unit := range units {
			isNamed := func(o Operation) bool { return o.Name == unit.Name }
			if with[unit.Name] && enablementOf(&unit) == Enabled && !slices.ContainsFunc(operations, isNamed) {
				result = append(result, newEnablement(unit.Name, Enabled, Enabled))
			}
		}
		return result
	}
	return append(again(before, disabled), disabled...), append(enabled, again(after, enabled)...)
}

// installChanges returns the changes of files that can have the section Install of a unit: its own, that of its
// template, and drop-ins of both.
func installChanges(unit string, paths []hosttree.Change) (changes []hosttree.Change) {
	names := []string{unit}
	if template := hosttree.TemplateOf(unit); template != "" {
		names = append(names, template)
	}
	for _, name := range names {
		file := path.Join(hosttree.UnitDirectory, name)
		for _, change := range paths {
			isDropIn := path.Dir(change.Path) == file+".d" && path.Ext(change.Path) == ".conf"
			if change.Path == file || isDropIn && (hasInstall(change.From) || hasInstall(change.To)) {
				changes = append(changes, change)
			}
		}
	}
	return changes
}

// hasInstall reports whether a drop-in has a section Install. It can have one if its contents are not known.
func hasInstall(dropIn *hosttree.Entry) bool {
	return dropIn != nil && (dropIn.Contents == nil || strings.Contains(string(dropIn.Contents), "[Install]"))
}

// disabledWith returns the units that are disabled with one of these names: the instances of a template, and those that
// its file names with Also.
func disabledWith(name string, before, after []types.Unit) (units []string) {
	for _, unit := range slices.Concat(before, after) {
		if hosttree.TemplateOf(unit.Name) == name {
			units = append(units, unit.Name)
		}
		if unit.Name != name && unit.Name != hosttree.TemplateOf(name) {
			continue
		}
		units = append(units, installValues(unit, "Also")...)
	}
	return units
}

func newEnablement(unit string, before, after Enablement) Operation {
	return Operation{Kind: ChangeEnablement, Name: unit, Before: State{Enablement: before}, After: State{Enablement: after}}
}

// enablementOf returns whether a unit is enabled; nil is a unit that is not configured. A masked unit can't be enabled.
func enablementOf(unit *types.Unit) Enablement {
	switch {
	case unit == nil:
		return Preset
	case isMasked(unit):
		return Disabled
	case unit.Enabled == nil:
		return Preset
	case *unit.Enabled:
		return Enabled
	}
	return Disabled
}

func isMasked(unit *types.Unit) bool { return ptr.Deref(unit.Mask, false) }

// userOperations returns the operations that create and change groups and then users, and those that remove users and
// then groups. SSH keys are paths.
func userOperations(before, after types.Passwd) (created, deleted []Operation) {
	var deletedGroups []Operation
	for old, now := range changed(before.Groups, after.Groups) {
		operation := Operation{Kind: ChangeGroup, Name: keyOf(old, now), Before: State{Group: old}, After: State{Group: now}}
		if now == nil {
			deletedGroups = append(deletedGroups, operation)
		} else {
			created = append(created, operation)
		}
	}
	for old, now := range changed(withoutSSHKeys(before.Users), withoutSSHKeys(after.Users)) {
		operation := Operation{Kind: ChangeUser, Name: keyOf(old, now), Before: State{User: old}, After: State{User: now}}
		if now == nil {
			deleted = append(deleted, operation)
		} else {
			created = append(created, operation)
		}
	}
	return created, append(deleted, deletedGroups...)
}

func withoutSSHKeys(users []types.PasswdUser) []types.PasswdUser {
	users = slices.Clone(users)
	for i := range users {
		users[i].SSHAuthorizedKeys = nil
	}
	return users
}

// osOperations returns the operation that changes the operating system.
func osOperations(before, after OperatingSystem) []Operation {
	if !changesOS(before, after) {
		return nil
	}
	return []Operation{{Kind: ChangeOS, Before: State{OS: &before}, After: State{OS: &after}}}
}

// kernelArgumentOperations returns the operation that changes kernel arguments. The order of the arguments counts.
func kernelArgumentOperations(before, after []string) []Operation {
	from, to := ignition.SplitArguments(before), ignition.SplitArguments(after)
	if slices.Equal(from, to) {
		return nil
	}
	return []Operation{{Kind: ChangeKernelArguments, Before: State{KernelArguments: from}, After: State{KernelArguments: to}}}
}
