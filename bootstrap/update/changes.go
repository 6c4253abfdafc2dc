package update

import (
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Difference is an entry that differs, and what the host does because of it.
type Difference struct {
	Item
	// Actions are what the host does after the change.
	Actions []Action
	// Reason is where the actions come from.
	Reason string
}

// Reasons of actions that no policy decides.
const (
	noPolicy      = "no policy covers it"
	alwaysReboots = "it always requires a reboot"
	onlyKeys      = "only SSH keys and passwords have a policy"
	isRequested   = "it was requested"
	needsReboot   = "the operating system says that it needs this"
)

// findChanges returns the entries that differ, with their actions: a restart that was requested, what always requires a
// reboot, then paths, units, and users.
func findChanges(before, after Config, policy Policy, onHost differing) (changes []Difference) {
	pinned := findPinningChange(before.Ignition, after.Ignition, onHost)
	add := func(kind Kind, name string, because Rule) {
		entry := Item{kind, name}
		because = pinned.ruleFor(entry, because)
		changes = append(changes, Difference{Item: entry, Actions: because.Actions, Reason: because.Reason})
	}
	if after.Restart != RestartNothing {
		kind, why := KindRestart, isRequested
		if after.Restart == RestartKernel {
			kind, why = KindOSReboot, needsReboot
		}
		add(kind, "", Rule{Actions: after.Restart.actions(), Reason: why})
	}
	for _, field := range []struct {
		kind    Kind
		differs bool
	}{
		{KindKernelArguments, !slices.Equal(before.KernelArguments, after.KernelArguments)},
		{KindExtensions, !slices.Equal(before.OS.Extensions, after.OS.Extensions)},
		{KindKernelType, before.OS.KernelType != after.OS.KernelType},
		{KindOSImage, before.OS.Image != after.OS.Image},
	} {
		if field.differs {
			add(field.kind, "", uncovered(alwaysReboots))
		}
	}
	from, to := before.Ignition, after.Ignition
	for old, now := range changed(from.Storage.Files, to.Storage.Files, onHost) {
		add(KindFile, keyOf(old, now), policy.ofPath(keyOf(old, now)))
	}
	for old, now := range changed(from.Storage.Directories, to.Storage.Directories, onHost) {
		add(KindDirectory, keyOf(old, now), policy.ofPath(keyOf(old, now)))
	}
	for old, now := range changed(from.Storage.Links, to.Storage.Links, onHost) {
		add(KindLink, keyOf(old, now), policy.ofPath(keyOf(old, now)))
	}
	for old, now := range changed(from.Systemd.Units, to.Systemd.Units, onHost) {
		add(KindUnit, keyOf(old, now), policy.ofUnit(keyOf(old, now)))
	}
	for old, now := range changed(from.Passwd.Users, to.Passwd.Users, nil) {
		because := policy.SSHKeys
		if !differOnlyInKeys(old, now) {
			because = uncovered(onlyKeys)
		}
		add(KindUser, keyOf(old, now), because)
	}
	for old, now := range changed(from.Passwd.Groups, to.Passwd.Groups, nil) {
		add(KindGroup, keyOf(old, now), uncovered(onlyKeys))
	}
	return changes
}

// differOnlyInKeys reports whether two entries of a user differ only in SSH keys and password hash.
func differOnlyInKeys(before, after *types.PasswdUser) bool {
	return ignition.Equal(withoutKeys(before), withoutKeys(after))
}

// withoutKeys returns the attributes of a user other than name, SSH keys and password hash. A user without an entry has
// none.
func withoutKeys(user *types.PasswdUser) (rest types.PasswdUser) {
	if user != nil {
		rest = *user
	}
	rest.Name, rest.SSHAuthorizedKeys, rest.PasswordHash = "", nil, nil
	return rest
}
