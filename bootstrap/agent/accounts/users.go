package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

const (
	// noPassword is the password of users without one, as from Ignition: they can't log in with a password.
	noPassword = "*"
	// inUse is the exit code of userdel if the user has processes.
	inUse = 8
	// endTimeout is how long sessions of a user may take to end.
	endTimeout = 30 * time.Second
)

// changeUser brings a user to the state after an operation.
func (e Executor) changeUser(ctx context.Context, known *records, operation update.Operation) error {
	name, before, after := operation.Name, operation.Before.User, operation.After.User
	original, isKnown, err := e.originalUser(known, name)
	if err != nil {
		return err
	}
	current, err := e.user(name)
	if err != nil {
		return err
	}
	switch {
	case after != nil && original == nil && (current == nil || isInterrupted(known.Users[name])):
		if current, err = e.create(ctx, known, name, after); err != nil {
			return err
		}
	case after != nil:
	case !isKnown:
		if current != nil && before != nil && before.PasswordHash != nil {
			return e.setPassword(ctx, "chpasswd", name, noPassword)
		}
		return nil
	case original == nil:
		return e.remove(ctx, known, before, current)
	}
	if current == nil {
		return errors.New("the user of the image does not exist any more: create it with useradd")
	}
	desired, err := e.desiredUser(ctx, before, after, current, original)
	if err != nil {
		return err
	}
	return e.modify(ctx, name, current, desired)
}

// isInterrupted reports whether a user that did not exist was perhaps created, but not completely.
func isInterrupted(r *userRecord) bool { return r != nil && r.Original == nil && !r.IsCreated }

// create creates a user as Ignition does. What an interrupted call created is removed first: it can be in some files
// and not in others.
func (e Executor) create(ctx context.Context, known *records, name string, configured *types.PasswdUser) (*user, error) {
	r := known.Users[name]
	if r == nil {
		r = &userRecord{}
		known.Users[name] = r
	}
	if current, err := e.user(name); err != nil {
		return nil, err
	} else if current != nil {
		if err := e.userdel(ctx, known, configured, current); err != nil {
			return nil, err
		}
	}
	arguments, err := e.useraddArguments(ctx, r, configured)
	if err != nil {
		return nil, err
	}
	if r.HadHome == nil {
		if r.HadHome, err = e.hasHome(ctx, configured); err != nil {
			return nil, err
		}
		if err := e.write(known); err != nil {
			return nil, err
		}
	}
	if err := e.run(ctx, "useradd", append(arguments, "--", name)...); err != nil {
		return nil, err
	}
	created, err := e.user(name)
	if err != nil {
		return nil, err
	}
	if created == nil {
		return nil, errors.New("useradd did not create the user in /etc/passwd")
	}
	if err := e.setPassword(ctx, "chpasswd", name, noPassword); err != nil {
		return nil, err
	}
	if !ptr.Deref(configured.NoCreateHome, false) && !*r.HadHome {
		if err := e.ownHome(created); err != nil {
			return nil, err
		}
	}
	if err := durable.SyncFileSystem(e.path("/etc")); err != nil {
		return nil, err
	}
	created.Password, r.IsCreated, r.HadHome = noPassword, true, nil
	return created, e.write(known)
}

// useraddArguments returns those of useradd, as Ignition passes them. A user that was removed gets its IDs again,
// unless another one has them.
func (e Executor) useraddArguments(ctx context.Context, r *userRecord, configured *types.PasswdUser) (arguments []string, err error) {
	add := func(flag string, value *string) {
		if isSet(value) {
			arguments = append(arguments, flag, *value)
		}
	}
	uid, primary, noUserGroup := configured.UID, configured.PrimaryGroup, ptr.Deref(configured.NoUserGroup, false)
	if r.Removed != nil && uid == nil {
		isUserTaken, errUser := e.isTaken("/etc/passwd", r.Removed.UID)
		isGroupTaken, errGroup := e.isTaken("/etc/group", r.Removed.GID)
		if err := errors.Join(errUser, errGroup); err != nil {
			return nil, err
		}
		if !isUserTaken {
			uid = ptr.To(r.Removed.UID)
		}
		own, err := e.group(configured.Name)
		if err != nil {
			return nil, err
		}
		if hasOwnGroup(configured) && (own != nil || !isGroupTaken) {
			if own == nil {
				if err := e.run(ctx, "groupadd", "--gid", strconv.Itoa(r.Removed.GID), "--", configured.Name); err != nil {
					return nil, err
				}
			}
			primary, noUserGroup = ptr.To(configured.Name), true
		}
	}
	add("--home-dir", configured.HomeDir)
	add("--comment", configured.Gecos)
	add("--gid", primary)
	add("--shell", configured.Shell)
	if uid != nil {
		arguments = append(arguments, "--uid", strconv.Itoa(*uid))
	}
	flags := map[string]bool{
		"--no-create-home": ptr.Deref(configured.NoCreateHome, false), "--create-home": !ptr.Deref(configured.NoCreateHome, false),
		"--no-user-group": noUserGroup, "--system": ptr.Deref(configured.System, false), "--no-log-init": ptr.Deref(configured.NoLogInit, false),
	}
	for flag, isSet := range flags {
		if isSet {
			arguments = append(arguments, flag)
		}
	}
	return arguments, nil
}

// hasHome reports whether the home of a user exists before the user does: an existing directory, such as /opt, stays as
// it is.
func (e Executor) hasHome(ctx context.Context, configured *types.PasswdUser) (*bool, error) {
	home := ptr.Deref(configured.HomeDir, "")
	if home == "" {
		base, err := e.useraddDefault(ctx, "HOME")
		if err != nil {
			return nil, err
		}
		home = path.Join(base, configured.Name)
	}
	_, err := os.Lstat(e.path(home))
	if errors.Is(err, fs.ErrNotExist) {
		return ptr.To(false), nil
	}
	return ptr.To(true), err
}

// ownHome makes a user the owner of its home, which an interrupted useradd leaves to root.
func (e Executor) ownHome(u *user) error {
	home := e.path(u.Home)
	found, err := os.Lstat(home)
	if err != nil || !found.IsDir() || found.Sys().(*syscall.Stat_t).Uid != 0 || u.Home == "/" {
		return err
	}
	return os.Lchown(home, u.UID, u.GID)
}

// desiredUser returns how a user is with a configuration, or without one. What the configuration says counts, as in
// Ignition. What only the configuration before said is as it was originally, or as in a user that Ignition creates.
// Everything else stays.
func (e Executor) desiredUser(ctx context.Context, before, after *types.PasswdUser, current, original *user) (desired user, err error) {
	old, now := ptr.Deref(before, types.PasswdUser{}), ptr.Deref(after, types.PasswdUser{})
	if original == nil {
		original = &user{UID: current.UID, GID: current.GID, Home: current.Home, Password: noPassword}
		if isSet(old.Shell) && !isSet(now.Shell) {
			if original.Shell, err = e.useraddDefault(ctx, "SHELL"); err != nil {
				return user{}, err
			}
		}
	}
	desired = *current
	choose(&desired.Gecos, old.Gecos, now.Gecos, original.Gecos)
	choose(&desired.Shell, old.Shell, now.Shell, original.Shell)
	choose(&desired.Home, old.HomeDir, now.HomeDir, original.Home)
	switch {
	case now.PasswordHash != nil:
		desired.Password = cmp.Or(*now.PasswordHash, noPassword)
	case old.PasswordHash != nil:
		desired.Password = original.Password
	}
	switch {
	case now.UID != nil:
		desired.UID = *now.UID
	case old.UID != nil:
		desired.UID = original.UID
	}
	switch {
	case isSet(now.PrimaryGroup):
		desired.GID, err = e.groupID(*now.PrimaryGroup)
	case isSet(old.PrimaryGroup):
		desired.GID = original.GID
	}
	switch {
	case len(now.Groups) > 0:
		desired.Groups = nil
		for _, group := range now.Groups {
			desired.Groups = append(desired.Groups, string(group))
		}
		desired.Groups = sorted(desired.Groups)
	case len(old.Groups) > 0:
		desired.Groups = original.Groups
	}
	return desired, err
}

// choose sets a field to what the new configuration says, or to the original if only the old one says something.
func choose(field *string, old, now *string, original string) {
	switch {
	case isSet(now):
		*field = *now
	case isSet(old):
		*field = original
	}
}

func isSet(value *string) bool { return ptr.Deref(value, "") != "" }

// groupID returns the ID of a group that has a name or, in decimal, an ID.
func (e Executor) groupID(name string) (int, error) {
	if id, err := strconv.Atoi(name); err == nil {
		return id, nil
	}
	found, err := e.group(name)
	if err != nil {
		return 0, err
	}
	if found == nil {
		return 0, fmt.Errorf("primaryGroup %s does not exist: create it in passwd.groups", name)
	}
	return found.GID, nil
}

// useraddDefault returns a default of useradd, such as SHELL or HOME.
func (e Executor) useraddDefault(ctx context.Context, name string) (string, error) {
	output, err := e.Runner.Run(ctx, "useradd", "--defaults")
	for line := range strings.Lines(string(output)) {
		if value, isIt := strings.CutPrefix(strings.TrimSpace(line), name+"="); isIt {
			return value, err
		}
	}
	return "", err
}

// modify changes what differs in a user.
func (e Executor) modify(ctx context.Context, name string, current *user, desired user) error {
	var arguments []string
	if desired.Home != current.Home {
		arguments = append(arguments, "--home", desired.Home, "--move-home")
	}
	if desired.UID != current.UID {
		arguments = append(arguments, "--uid", strconv.Itoa(desired.UID))
	}
	if desired.GID != current.GID {
		arguments = append(arguments, "--gid", strconv.Itoa(desired.GID))
	}
	if desired.Gecos != current.Gecos {
		arguments = append(arguments, "--comment", desired.Gecos)
	}
	if desired.Shell != current.Shell {
		arguments = append(arguments, "--shell", desired.Shell)
	}
	if !slices.Equal(desired.Groups, current.Groups) {
		arguments = append(arguments, "--groups", strings.Join(desired.Groups, ","))
	}
	if len(arguments) > 0 {
		if err := e.run(ctx, "usermod", append(arguments, "--", name)...); err != nil {
			return err
		}
	}
	if desired.Password != current.Password {
		return e.setPassword(ctx, "chpasswd", name, desired.Password)
	}
	return nil
}

// remove removes a user that Poolboot or Ignition created, without its files, and remembers its IDs for the case that
// this is undone.
func (e Executor) remove(ctx context.Context, known *records, configured *types.PasswdUser, current *user) error {
	r := known.Users[configured.Name]
	if r == nil {
		r = &userRecord{IsCreated: true}
		known.Users[configured.Name] = r
	}
	if current != nil {
		r.Removed = &user{UID: current.UID, GID: current.GID}
		if err := e.write(known); err != nil {
			return err
		}
	}
	if r.Removed != nil {
		if err := e.userdel(ctx, known, configured, r.Removed); err != nil {
			return err
		}
	}
	r.IsCreated, r.KeptGroup, r.HadHome = false, nil, nil
	return e.write(known)
}

// hasOwnGroup reports whether useradd creates a group for a user, with its name.
func hasOwnGroup(configured *types.PasswdUser) bool {
	return !ptr.Deref(configured.NoUserGroup, false) && !isSet(configured.PrimaryGroup)
}

// userdel removes a user, and its own group. Another group with the name of the user stays: the program removes it,
// too, if it was the primary group of the user.
func (e Executor) userdel(ctx context.Context, known *records, configured *types.PasswdUser, current *user) error {
	name, r := configured.Name, known.Users[configured.Name]
	if !hasOwnGroup(configured) && r.KeptGroup == nil {
		kept, err := e.group(name)
		if err != nil {
			return err
		}
		r.KeptGroup = kept
		if err := e.write(known); err != nil {
			return err
		}
	}
	if existing, err := e.user(name); err != nil {
		return err
	} else if existing != nil {
		if err := e.endAndDelete(ctx, name); err != nil {
			return err
		}
	}
	left, err := e.group(name)
	switch {
	case err != nil:
		return err
	case left == nil && r.KeptGroup != nil:
		return e.ensureGroup(ctx, name, nil, *r.KeptGroup, false)
	case left != nil && hasOwnGroup(configured) && left.GID == current.GID:
		return e.run(ctx, "groupdel", "--", name)
	}
	return nil
}

// endAndDelete removes a user. It ends the sessions of the user, but not services that run as the user: they are an
// error.
func (e Executor) endAndDelete(ctx context.Context, name string) error {
	err := e.run(ctx, "userdel", "--", name)
	if command.ExitCode(err) != inUse {
		return err
	}
	_ = e.run(ctx, "loginctl", "terminate-user", name) // userdel decides
	for deadline := time.Now().Add(endTimeout); command.ExitCode(err) == inUse && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		err = e.run(ctx, "userdel", "--", name)
	}
	return err
}
