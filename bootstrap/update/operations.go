package update

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// findOperations returns what changes a host, in a safe order: owners exist while their files do; a unit is disabled
// while its old file is there, and enabled when the new one is; what becomes active with the next boot is last.
func findOperations(before, after Config) []Operation {
	from, to := before.Ignition, after.Ignition
	paths := changedPaths(from, to)
	removed, written := pathOperations(paths)
	disabled, enabled := enablementOperations(from.Systemd.Units, to.Systemd.Units, paths)
	created, deleted := userOperations(from.Passwd, to.Passwd)
	return slices.Concat(created, disabled, removed, written, enabled, deleted, osOperations(before.OS, after.OS),
		kernelArgumentOperations(before.KernelArguments, after.KernelArguments))
}

// pathOperations returns the operations that remove paths, what is in a directory before the directory, and those that
// write paths, a directory before what is in it, and hard links after the files that they lead to.
func pathOperations(paths map[string][2]*Path) (removed, written []Operation) {
	for name, states := range paths {
		before, after := states[0], states[1]
		if after == nil || before != nil && before.Type == TypeDirectory && after.Type != TypeDirectory {
			removed = append(removed, Operation{Kind: ChangePath, Name: name, Before: State{Path: before}})
			before = nil
		}
		if after != nil {
			written = append(written, Operation{Kind: ChangePath, Name: name, Before: State{Path: before}, After: State{Path: after}})
		}
	}
	slices.SortFunc(removed, func(a, b Operation) int { return compareDepth(b.Name, a.Name) })
	slices.SortFunc(written, func(a, b Operation) int {
		return cmp.Or(boolToInt(a.After.Path.Type == TypeHardLink)-boolToInt(b.After.Path.Type == TypeHardLink), compareDepth(a.Name, b.Name))
	})
	return removed, written
}

// compareDepth compares paths by their depth, and then by their names.
func compareDepth(a, b string) int {
	return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// enablementOperations returns the operations that disable units before their files change, because the links that
// enable a unit follow from its file, and those that enable units or apply the presets after that.
func enablementOperations(before, after []types.Unit, paths map[string][2]*Path) (disabled, enabled []Operation) {
	for old, now := range changed(before, after) {
		name := keyOf(old, now)
		from, to := enablementOf(old), enablementOf(now)
		_, fileChanges := paths[unitPath(name)]
		if from != Disabled && (to == Disabled || fileChanges && hasFile(old)) {
			disabled = append(disabled, newEnablement(name, from, Disabled))
			from = Disabled
		}
		if to != Disabled && (from != to || to == Preset && fileChanges && hasFile(now)) {
			enabled = append(enabled, newEnablement(name, from, to))
		}
	}
	return disabled, enabled
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

// hasFile reports whether a unit is configured with contents of its own.
func hasFile(unit *types.Unit) bool {
	return unit != nil && ptr.Deref(unit.Contents, "") != "" && !isMasked(unit)
}

// userOperations returns the operations that create and change groups and then users, and those that remove users and
// then groups.
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
	for old, now := range changed(before.Users, after.Users) {
		operation := Operation{Kind: ChangeUser, Name: keyOf(old, now), Before: State{User: old}, After: State{User: now}}
		if now == nil {
			deleted = append(deleted, operation)
		} else {
			created = append(created, operation)
		}
	}
	return created, append(deleted, deletedGroups...)
}

// osOperations returns the operation that changes the operating system. Another extensions image alone changes nothing:
// it is used when extensions are installed.
func osOperations(before, after OperatingSystem) []Operation {
	if before.Image == after.Image && before.KernelType == after.KernelType && slices.Equal(before.Extensions, after.Extensions) {
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
