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

// Operations returns what changes a host, in a safe order: owners exist while their files do; a unit is disabled while
// its old file is there, and enabled when the new one is; what becomes active with the next boot is last. There are
// some also if no host can be updated like that. Paths that differ on the host are written again.
func Operations(before, after Config, differingPaths ...string) []Operation {
	from, to := before.Ignition, after.Ignition
	paths := hosttree.Changes(hosttree.New(from), hosttree.New(to), differingPaths...)
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
	installs := installChanges(paths)
	for old, now := range pairs(before, after) {
		name := keyOf(old, now)
		from, to := enablementOf(old), enablementOf(now)
		own, ofTemplate := installs[name], installs[hosttree.TemplateOf(name)]
		hadFile, hasFile := own.hadFile || ofTemplate.hadFile, own.hasFile || ofTemplate.hasFile
		if from != Disabled && (to == Disabled || hadFile || hasFile && from == Enabled) {
			disabled = append(disabled, newEnablement(name, from, Disabled))
			from = Disabled
		}
		if to != Disabled && (from != to || to == Preset && hasFile) {
			enabled = append(enabled, newEnablement(name, from, to))
		}
	}
	with := disabledWith(slices.Concat(disabled, enabled), slices.Concat(before, after)) // each disables its unit, or does so when it is undone
	slices.Reverse(disabled)                                                             // an instance after its template also when they are undone
	again := func(units []types.Unit, operations []Operation) (result []Operation) {
		named := map[string]bool{}
		for _, operation := range operations {
			named[operation.Name] = true
		}
		for _, unit := range units {
			if with[unit.Name] && enablementOf(&unit) == Enabled && !named[unit.Name] {
				result = append(result, newEnablement(unit.Name, Enabled, Enabled))
			}
		}
		return result
	}
	return append(again(before, disabled), disabled...), append(enabled, again(after, enabled)...)
}

// installChange is whether a file that can have the section Install of a unit changes: before and after that.
type installChange struct{ hadFile, hasFile bool }

// installChanges returns the changes of the files that can have the section Install of a unit, by the name of the unit:
// its own file, and drop-ins. Those of a template are also those of its instances.
func installChanges(paths []hosttree.Change) map[string]installChange {
	installs := map[string]installChange{}
	isFile := func(entry *hosttree.Entry) bool { return entry != nil && entry.Type == hosttree.File }
	for _, change := range paths {
		name, isUnit := strings.CutPrefix(change.Path, hosttree.UnitDirectory+"/")
		if !isUnit {
			continue
		}
		if of, isDropIn := strings.CutSuffix(path.Dir(name), ".d"); isDropIn && path.Ext(name) == ".conf" && (hasInstall(change.From) || hasInstall(change.To)) {
			name = of
		}
		before := installs[name]
		installs[name] = installChange{before.hadFile || isFile(change.From), before.hasFile || isFile(change.To)}
	}
	return installs
}

// hasInstall reports whether a drop-in has a section Install. It can have one if its contents are not known.
func hasInstall(dropIn *hosttree.Entry) bool {
	return dropIn != nil && (dropIn.Contents == nil || strings.Contains(string(dropIn.Contents), "[Install]"))
}

// disabledWith returns the units that operations disable together with their own: the instances of a template, and
// those that the files of a unit or of its template name with Also.
func disabledWith(operations []Operation, units []types.Unit) map[string]bool {
	instances, also := map[string][]string{}, map[string][]string{}
	for _, unit := range units {
		if template := hosttree.TemplateOf(unit.Name); template != "" {
			instances[template] = append(instances[template], unit.Name)
		}
		also[unit.Name] = append(also[unit.Name], ignition.InstallValues(unit, ignition.SettingAlso)...)
	}
	with := map[string]bool{}
	take := func(of map[string][]string, name string) { // each list once
		for _, unit := range of[name] {
			with[unit] = true
		}
		delete(of, name)
	}
	for _, operation := range operations {
		take(instances, operation.Name)
		take(also, operation.Name)
		take(also, hosttree.TemplateOf(operation.Name))
	}
	return with
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
	for old, now := range changed(before.Groups, after.Groups, nil) {
		operation := Operation{Kind: ChangeGroup, Name: keyOf(old, now), Before: State{Group: old}, After: State{Group: now}}
		if now == nil {
			deletedGroups = append(deletedGroups, operation)
		} else {
			created = append(created, operation)
		}
	}
	for old, now := range changed(withoutSSHKeys(before.Users), withoutSSHKeys(after.Users), nil) {
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
