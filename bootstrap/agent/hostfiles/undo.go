package hostfiles

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// LeftOver is a path that the undo of an update could not restore.
type LeftOver struct {
	// Path is where the path leads on the host.
	Path string
	// Why says also what to do, as far as that is known.
	Why string
}

// leftOver is a step that could not be undone. Its slots are kept.
type leftOver struct {
	step
	Why string `json:"why"`
}

// LeftOver returns the paths that could not be restored when an update was undone.
func (u *Updater) LeftOver() (left []LeftOver) {
	for _, l := range u.journal.LeftOver {
		of := LeftOver{"/" + l.Path, l.Why}
		if !slices.ContainsFunc(left, func(other LeftOver) bool { return other.Path == of.Path }) {
			left = append(left, of)
		}
	}
	return left
}

// Retry tries again to restore the paths that are left over. It is no error if that fails: LeftOver has them still.
func (u *Updater) Retry() error {
	switch {
	case u.isInterrupted():
		return ErrInterrupted
	case u.IsUnconfirmed():
		return ErrUnconfirmed
	case len(u.journal.LeftOver)+len(u.journal.Stale) == 0:
		return nil
	}
	u.mounts.forget()
	steps := make([]step, len(u.journal.LeftOver))
	for i, l := range u.journal.LeftOver {
		steps[i] = l.step
	}
	changed := *u.journal
	changed.LeftOver, changed.Stale = u.undoSteps(steps), nil
	isChanged := !reflect.DeepEqual(changed.LeftOver, u.journal.LeftOver)
	slots, needed := u.journal.slots(), changed.slots()
	if isChanged { // first the journal, then the slots: without them, nothing could be restored
		for slot := range slots {
			if !needed[slot] {
				changed.Stale = append(changed.Stale, slot)
			}
		}
		slices.Sort(changed.Stale)
		if err := u.replaceJournal(changed); err != nil {
			return err
		}
	}
	changed.Stale = u.sweep(slots, needed)
	if slices.Equal(changed.Stale, u.journal.Stale) {
		return nil
	}
	return u.replaceJournal(changed)
}

// undo undoes the steps of an update as far as possible. It can be repeated.
func (u *Updater) undo() error {
	if err := u.enter(undoing); err != nil {
		return err
	}
	changed := *u.journal
	changed.Phase, changed.LeftOver = staging, slices.Concat(u.journal.LeftOver, u.undoSteps(u.journal.Steps))
	if err := u.replaceJournal(changed); err != nil {
		return err
	}
	return u.discard()
}

// undoSteps undoes steps, the last one first. It returns those of the paths that could not be restored, with the steps
// of the directories around them.
func (u *Updater) undoSteps(steps []step) (left []leftOver) {
	why := map[string]string{}
	fail := func(name string, err error) {
		if err != nil && why[name] == "" {
			why[name] = u.explain(name, err)
		}
	}
	for i := range slices.Backward(steps) {
		fail(steps[i].Path, u.undoStep(&steps[i]))
	}
	isChecked := map[string]bool{}
	for i := range steps {
		if s := &steps[i]; !isChecked[s.Path] {
			isChecked[s.Path] = true
			fail(s.Path, u.checkUndone(s))
		}
	}
	for name, err := range u.syncSteps(steps) {
		fail(name, err)
	}
	for _, s := range steps {
		reason := why[s.Path]
		for name := range why {
			if s.Do == mkdir && strings.HasPrefix(name, s.Path+"/") && reason == "" {
				reason = "it is a directory that has to be removed, and is not empty"
			}
		}
		if reason != "" {
			left = append(left, leftOver{s, reason})
		}
	}
	return left
}

// undoStep undoes a step, if it was done.
func (u *Updater) undoStep(s *step) error {
	switch s.Do {
	case put, remove:
		return u.restore(s)
	case mkdir:
		err := u.removeDirectory(s.Path)
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			return nil // something else was written to it: it stays
		}
		return err
	case rmdir:
		return errors.Join(u.mkdir(s.Path, *s.Before), u.setAttributes(s.Path, s.label()))
	case setMeta:
		if found, err := u.stat(s.Path); err != nil || found == nil {
			return err // somebody removed it
		}
		return u.setMeta(s.Path, *s.Before)
	}
	return nil
}

// restore puts back what was at the path of a step.
func (u *Updater) restore(s *step) error {
	if s.Old {
		if err := u.restoreParents(s.Path); err != nil {
			return err
		}
		return u.install(s.old(), s)
	}
	isNew, err := u.isAlike(s.new(), s.Path)
	switch {
	case err != nil:
		return err
	case isNew:
		return u.remove(s.Path)
	}
	if isMount, err := u.isMountPoint(s.Path); err != nil || !isMount {
		return err // it was not put, or is something else since
	}
	return unix.EBUSY // it can be below the mount
}

// restoreParents creates parents that somebody removed.
func (u *Updater) restoreParents(name string) error {
	for end := range name {
		if name[end] != '/' {
			continue
		}
		if found, err := u.stat(name[:end]); err != nil {
			return err
		} else if found != nil {
			continue
		}
		if err := u.mkdir(name[:end], defaultMeta(hosttree.Directory)); err != nil {
			return err
		}
	}
	return nil
}

// checkUndone returns an error if a path is not as it was before its first step.
func (u *Updater) checkUndone(s *step) error {
	isRestored := true
	found, err := u.stat(s.Path)
	switch {
	case err != nil:
	case s.Old:
		isRestored, err = u.isAlike(s.old(), s.Path)
	case s.Do == rmdir:
		isRestored = isDirectory(found)
	case s.Do == setMeta:
		isRestored = found == nil || metaOf(found) == *s.Before
	case s.Do == put:
		isNew, errNew := u.isAlike(s.new(), s.Path)
		isRestored, err = !isNew, errNew
	}
	if err == nil && !isRestored {
		err = errors.New("it is not as before the update: find what changes it, or prevents a change")
	}
	return err
}

// explain returns why a path could not be restored, and what to do.
func (u *Updater) explain(name string, err error) string {
	if obstacle, isObstacle := errors.AsType[*Obstacle](err); isObstacle {
		return obstacle.Error()
	}
	remedy := ""
	switch {
	case errors.Is(err, unix.EBUSY):
		remedy = "unmount what is mounted there, or reboot the host"
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY):
		remedy = "move the directory that is there away"
	case errors.Is(err, unix.EROFS):
		remedy = "mount its file system writable"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		remedy = "if it or its directory is immutable, remove the attribute with chattr -ia"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		remedy = "free some space on its file system"
	case errors.Is(err, unix.EXDEV):
		remedy = "another file system is mounted on the way: unmount it"
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EEXIST):
		remedy = "remove what is on the way and is no directory"
		if parent, err := u.existingParent(name); err == nil {
			below, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, parent), "/"), "/")
			remedy = "/" + path.Join(parent, below) + " is not the directory that it was: remove it"
		}
	default:
		return reasonOf(err)
	}
	return reasonOf(err) + ": " + remedy
}

// reasonOf returns an error without the name of a path, which is beside it.
func reasonOf(err error) string {
	if number, isNumber := errors.AsType[syscall.Errno](err); isNumber {
		return number.Error()
	}
	return err.Error()
}

// undoBecause undoes an update that can't be completed.
func (u *Updater) undoBecause(reason error) error {
	if err := u.undo(); err != nil {
		return fmt.Errorf("the update can't be completed: %w; and it can't be undone yet: %w", reason, err)
	}
	var left strings.Builder
	for _, l := range u.LeftOver() {
		fmt.Fprintf(&left, "; %s was not restored: %s", l.Path, l.Why)
	}
	return fmt.Errorf("the update was undone: %w%s", reason, left.String())
}
