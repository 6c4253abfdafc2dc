package accounts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Executor changes users and groups. The zero value is ready for use.
type Executor struct {
	Runner command.Runner
}

// Prepare records how the users and groups of an update are now, before any part of the update is carried out. Without
// it, an operation that is undone but was not carried out can't be told from one of a user that Ignition changed.
func (e Executor) Prepare(_ context.Context, operations []update.Operation) error {
	_, err := e.remember(operations)
	return err
}

// Apply carries out an operation of the kind update.ChangeUser or update.ChangeGroup. It can be repeated and undone.
//
// Without a state after it, a user or group is as it was before Poolboot changed it, or is removed if it did not exist.
// If that is not known, because Ignition changed it when the host was installed, the copy of the image in /usr/etc
// tells. On a host without this copy, the user stays, without a password, and the group stays.
func (e Executor) Apply(ctx context.Context, operation update.Operation) error {
	known, err := e.remember([]update.Operation{operation})
	if err != nil {
		return err
	}
	if operation.Kind == update.ChangeUser {
		err = e.changeUser(ctx, known, operation)
	} else {
		err = e.changeGroup(ctx, known, operation)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", strings.ToLower(string(operation.Kind)), operation.Name, err)
	}
	if err := durable.SyncFileSystem(e.path("/etc")); err != nil {
		return err
	}
	known.release(operation)
	return e.write(known)
}

func (e Executor) path(name string) string { return filepath.Join("/", e.Runner.Root, name) }

func (e Executor) run(ctx context.Context, name string, arguments ...string) error {
	_, err := e.Runner.Run(ctx, name, arguments...)
	return err
}

// setPassword sets the password hash of a user with chpasswd, or of a group with chgpasswd, by standard input.
func (e Executor) setPassword(ctx context.Context, program, name, hash string) error {
	if strings.ContainsAny(hash, ":\r\n\x00") {
		return errors.New("passwordHash has a colon or a line break: create the hash with mkpasswd")
	}
	_, err := e.Runner.RunWithInput(ctx, []byte(name+":"+hash+"\n"), program, "--encrypted")
	return err
}

// sorted returns names in order and once each.
func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
