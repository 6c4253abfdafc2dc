package accounts

import (
	"cmp"
	"context"
	"fmt"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Refusal returns why an operation is not possible on this host, "" if it is: an entry that is added for a user or
// group of the image, or removed, would change an ID or a home that files of the host depend on. A change of an entry
// that stays was refused before, without the host.
func (e Executor) Refusal(_ context.Context, operation update.Operation) string {
	known, err := e.load()
	if err != nil {
		return err.Error()
	}
	refuse := e.refuseUser
	if operation.Kind == update.ChangeGroup {
		refuse = e.refuseGroup
	}
	switch why, err := refuse(known, operation); {
	case err != nil:
		return err.Error()
	case why != "":
		return why + ", and files on the host depend on it: replace the Machine, or undo the change"
	}
	return ""
}

func (e Executor) refuseUser(known *records, operation update.Operation) (string, error) {
	name, before, after := operation.Name, operation.Before.User, operation.After.User
	current, err := e.user(name)
	if err != nil || current == nil || before != nil && after != nil || known.Users[name] != nil && isInterrupted(known.Users[name]) {
		return "", err
	}
	desired, configured := *current, after
	if after == nil {
		original, _, err := e.originalUser(known, name)
		if err != nil || original == nil { // it is removed, or stays
			return "", err
		}
		desired, configured = *original, before
	}
	if after != nil {
		if after.UID != nil {
			desired.UID = *after.UID
		}
		if isSet(after.HomeDir) {
			desired.Home = *after.HomeDir
		}
		if isSet(after.PrimaryGroup) {
			if gid, err := e.groupID(*after.PrimaryGroup); err == nil { // the group can be a new one
				desired.GID = gid
			}
		}
	}
	changes := func(what string, isConfigured, differs bool, from, to any) string {
		if !isConfigured || !differs {
			return ""
		}
		return fmt.Sprintf("the %s of user %s changes from %v to %v", what, name, from, to)
	}
	return cmp.Or(
		changes("ID", configured.UID != nil, desired.UID != current.UID, current.UID, desired.UID),
		changes("home", isSet(configured.HomeDir), desired.Home != current.Home, current.Home, desired.Home),
		changes("primary group", isSet(configured.PrimaryGroup), desired.GID != current.GID, current.GID, desired.GID),
	), nil
}

func (e Executor) refuseGroup(known *records, operation update.Operation) (string, error) {
	name, before, after := operation.Name, operation.Before.Group, operation.After.Group
	current, err := e.group(name)
	if err != nil || current == nil || before != nil && after != nil {
		return "", err
	}
	to := current.GID
	switch {
	case after != nil && after.Gid != nil:
		to = *after.Gid
	case after == nil && before.Gid != nil:
		original, _, err := e.originalGroup(known, name)
		if err != nil || original == nil {
			return "", err
		}
		to = original.GID
	}
	if to == current.GID {
		return "", nil
	}
	return fmt.Sprintf("the ID of group %s changes from %d to %d", name, current.GID, to), nil
}
