package accounts

import (
	"context"
	"strconv"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// lockedGroup is the password of a group that groupadd creates.
const lockedGroup = "!"

// changeGroup brings a group to the state after an operation.
func (e Executor) changeGroup(ctx context.Context, known *records, operation update.Operation) error {
	name, after := operation.Name, operation.After.Group
	original, isKnown, err := e.originalGroup(known, name)
	if err != nil {
		return err
	}
	current, err := e.group(name)
	if err != nil {
		return err
	}
	if after == nil {
		switch {
		case !isKnown, current == nil && original == nil:
			return nil
		case original == nil:
			return e.removeGroup(ctx, known, name, current)
		}
		return e.ensureGroup(ctx, name, current, *original, false)
	}
	desired := desiredGroup(after, current, original)
	if r := known.Groups[name]; current == nil && r != nil && r.Removed != nil && after.Gid == nil {
		isTaken, err := e.isTaken("/etc/group", r.Removed.GID)
		if err != nil {
			return err
		}
		if !isTaken {
			desired.GID = r.Removed.GID
		}
	}
	return e.ensureGroup(ctx, name, current, desired, ptr.Deref(after.System, false))
}

// desiredGroup returns how a group is with a configuration, as Ignition makes it. A group ID of -1 is any.
func desiredGroup(configured *types.PasswdGroup, current, original *group) group {
	desired := group{GID: -1, Password: lockedGroup}
	if current != nil {
		desired.GID = current.GID
	}
	if original != nil {
		desired = *original
	}
	if configured.Gid != nil {
		desired.GID = *configured.Gid
	}
	if hash := ptr.Deref(configured.PasswordHash, ""); hash != "" {
		desired.Password = hash
	}
	return desired
}

// ensureGroup creates or changes a group.
func (e Executor) ensureGroup(ctx context.Context, name string, current *group, desired group, isSystem bool) error {
	switch {
	case current == nil:
		var arguments []string
		if desired.GID >= 0 {
			arguments = append(arguments, "--gid", strconv.Itoa(desired.GID))
		}
		if isSystem {
			arguments = append(arguments, "--system")
		}
		if err := e.run(ctx, "groupadd", append(arguments, "--", name)...); err != nil {
			return err
		}
		current = &group{Password: lockedGroup}
	case desired.GID != current.GID:
		if err := e.run(ctx, "groupmod", "--gid", strconv.Itoa(desired.GID), "--", name); err != nil {
			return err
		}
	}
	// A group can be without a line in gshadow, and then its password is in neither file.
	if desired.Password != current.Password && (current.Password != "" || desired.Password != lockedGroup) {
		return e.setPassword(ctx, "chgpasswd", name, desired.Password)
	}
	return nil
}

// removeGroup removes a group, and remembers its ID for the case that this is undone.
func (e Executor) removeGroup(ctx context.Context, known *records, name string, current *group) error {
	if known.Groups[name] == nil {
		known.Groups[name] = &groupRecord{}
	}
	known.Groups[name].Removed = current
	if err := e.write(known); err != nil {
		return err
	}
	return e.run(ctx, "groupdel", "--", name)
}
