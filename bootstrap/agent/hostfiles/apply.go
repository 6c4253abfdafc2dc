package hostfiles

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// Check returns the *CheckError with which Apply would refuse the changes now. It changes nothing.
func (u *Updater) Check(changes []hosttree.Change, force bool) error {
	_, err := u.newPlan(changes, force)
	return err
}

// Apply changes the files of the host. Afterwards the update is unconfirmed: it can be undone by RollBack until
// Confirm. If it is not possible, Apply returns a *CheckError, and nothing was changed. If it fails, it was undone.
//
// If force is set, paths that were changed since Poolboot wrote them are overwritten.
func (u *Updater) Apply(changes []hosttree.Change, force bool) error {
	p, err := u.newPlan(changes, force)
	if err != nil {
		return err
	}
	managed := u.managed()
	u.journal = &journal{Sequence: u.journal.Sequence + 1, Phase: idle, Managed: managed, Next: p.next, Steps: p.steps}
	if err := u.enter(staging); err != nil {
		return errors.Join(err, u.discard())
	}
	if err := p.stage(); err != nil {
		return errors.Join(fmt.Errorf("prepare the update, nothing was changed: %w", err), u.discard())
	}
	if err := u.enter(committed); errors.Is(err, errUncertain) {
		return u.undoBecause(err)
	} else if err != nil {
		return errors.Join(err, u.discard())
	}
	if err := u.complete(); err != nil {
		return u.undoBecause(err)
	}
	return nil
}

// stage prepares the slots of an update and syncs them.
func (p *plan) stage() error {
	directories, written := map[string]bool{}, []string(nil)
	for _, s := range p.steps {
		if s.Slot == "" {
			continue
		}
		if directory := path.Dir(s.Slot); !directories[directory] {
			directories[directory] = true
			if err := p.makeSlots(directory); err != nil {
				return err
			}
		}
		if err := p.fillSlot(&s); err != nil {
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				return fmt.Errorf("/%s: %w: free some space on its file system", s.Path, err)
			}
			return fmt.Errorf("/%s: %w", s.Path, err)
		}
		if found, err := p.stat(s.new()); err != nil {
			return err
		} else if s.Do == put && isRegular(found) {
			written = append(written, s.new())
		}
	}
	return p.sync(append(written, slices.Sorted(maps.Keys(directories))...)...)
}

// makeSlots creates a directory of slots. It uses none that a user could have created in a directory of their own.
func (p *plan) makeSlots(directory string) error {
	found, err := p.stat(directory)
	switch {
	case err != nil:
		return err
	case found != nil && (!isDirectory(found) || metaOf(found) != meta{Mode: 0o700}):
		return fmt.Errorf("/%s is not a directory that only root can enter: remove it", directory)
	case found != nil:
		return nil
	}
	if err := p.mkdir(directory, meta{Mode: 0o700}); err != nil {
		return err
	}
	return p.sync(path.Dir(directory))
}

// fillSlot prepares the new file of a step, and keeps the old one.
func (p *plan) fillSlot(s *step) error {
	if s.Old {
		if err := p.link(s.Path, s.old()); err != nil {
			return err
		}
	}
	if s.Do != put {
		return nil
	}
	g := p.sources[s.Slot]
	from := g.source
	switch {
	case from.link != "":
		if g.metaAfter != nil {
			// The slot keeps this mode and owner if the update is undone: they are those of the original.
			if err := p.setMeta(from.link, *g.metaAfter); err != nil {
				return err
			}
		}
		return p.link(from.link, s.new())
	case from.hardLink != "":
		return p.link(from.hardLink, s.new())
	case from.copy != "":
		attributes, err := p.attributes(from.copy, true)
		if err != nil {
			return err
		}
		file, err := p.open(from.copy, unix.O_RDONLY)
		if err != nil {
			return err
		}
		return errors.Join(p.create(s.new(), file, g.meta, attributes), file.Close())
	}
	label, err := p.label(s)
	if err != nil {
		return err
	}
	if from.symlink != "" {
		return p.symlink(from.symlink, s.new(), g.meta, label)
	}
	return p.create(s.new(), bytes.NewReader(from.contents), g.meta, label)
}

// label returns the SELinux label of a new file: that of the file that it replaces, or of its directory. Without it, it
// would have that of the directory of slots.
func (p *plan) label(s *step) (map[string]string, error) {
	if s.Old {
		if label, err := p.attributes(s.Path, false); err != nil || label != nil {
			return label, err
		}
	}
	parent, err := p.existingParent(s.Path)
	if err != nil {
		return nil, err
	}
	return p.attributes(parent, false)
}

// complete does the steps of a committed update. Each step can be repeated.
func (u *Updater) complete() error {
	for i := range u.journal.Steps {
		if err := u.do(&u.journal.Steps[i]); err != nil {
			return err
		}
	}
	if err := u.syncSteps(); err != nil {
		return err
	}
	return u.enter(applied)
}

// do does a step, if it was not done.
func (u *Updater) do(s *step) error {
	var err error
	switch s.Do {
	case put:
		err = u.install(s.new(), s)
	case remove:
		var isOld bool
		if isOld, err = u.isSame(s.old(), s.Path); isOld && err == nil {
			err = u.remove(s.Path)
		}
	case rmdir:
		err = u.removeDirectory(s.Path)
	case mkdir:
		err = u.mkdir(s.Path, *s.After)
	case setMeta:
		err = u.setMeta(s.Path, *s.After)
	}
	if err != nil {
		return fmt.Errorf("/%s: %w", s.Path, err)
	}
	return nil
}

// install puts what is in a slot to the path of a step. The slot keeps it, so that the step can be repeated even if the
// disk has only a part of it.
func (u *Updater) install(slot string, s *step) error {
	if isDone, err := u.isSame(slot, s.Path); err != nil || isDone {
		return err
	}
	if err := u.remove(s.temporary()); err != nil {
		return err
	}
	if err := u.link(slot, s.temporary()); err != nil {
		return err
	}
	return u.rename(s.temporary(), s.Path)
}

// removeDirectory removes an empty directory, and nothing else.
func (u *Updater) removeDirectory(name string) error {
	if found, err := u.stat(name); err != nil || !isDirectory(found) {
		return err
	}
	return u.remove(name)
}

// verify checks that the paths of the steps are as they were prepared: some disks lose what they confirmed.
func (u *Updater) verify() error {
	changed := map[string]bool{}
	for _, s := range u.journal.Steps {
		changed[s.Path] = true
	}
	for name, r := range u.journal.Next {
		if !changed[r.Real] {
			continue
		}
		if kinds, err := u.differences(r.Real, &r.state); err != nil || len(kinds) > 0 {
			return errors.Join(err, fmt.Errorf("%s is not as it was prepared: %v", name, kinds))
		}
	}
	return nil
}

// undo undoes the steps of an update, in the inverse order. Each step can be repeated.
func (u *Updater) undo() error {
	if err := u.enter(undoing); err != nil {
		return err
	}
	for i := range slices.Backward(u.journal.Steps) {
		if err := u.undoStep(&u.journal.Steps[i]); err != nil {
			return err
		}
	}
	if err := u.syncSteps(); err != nil {
		return err
	}
	if err := u.enter(staging); err != nil {
		return err
	}
	return u.discard()
}

// undoStep undoes a step, if it was done.
func (u *Updater) undoStep(s *step) error {
	var err error
	switch s.Do {
	case put, remove:
		err = u.restore(s)
	case mkdir:
		if err = u.removeDirectory(s.Path); errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			err = nil // something else was written to it: it stays
		}
	case rmdir:
		err = u.mkdir(s.Path, *s.Before)
	case setMeta:
		err = u.setMeta(s.Path, *s.Before)
	}
	if err != nil {
		return fmt.Errorf("/%s: %w", s.Path, err)
	}
	return nil
}

// restore puts back what was at the path of a step.
func (u *Updater) restore(s *step) error {
	if s.Old {
		return u.install(s.old(), s)
	}
	if isNew, err := u.isSame(s.new(), s.Path); err != nil || !isNew {
		return err // it was not put, or is something else since
	}
	return u.remove(s.Path)
}

// syncSteps syncs what the steps changed.
func (u *Updater) syncSteps() error {
	changed := map[string]bool{}
	for _, s := range u.journal.Steps {
		parent, err := u.existingParent(s.Path)
		if err != nil {
			return err
		}
		changed[parent] = true
		if found, err := u.stat(s.Path); err != nil {
			return err
		} else if (isDirectory(found) || isRegular(found)) && (s.Do == setMeta || s.Do == mkdir || s.Do == rmdir) {
			changed[s.Path] = true
		}
	}
	return u.sync(slices.Sorted(maps.Keys(changed))...)
}

// discard ends an update of which only slots were prepared.
func (u *Updater) discard() error { return u.finish(u.journal.Managed) }

// finish removes the slots that these records don't need, and ends the update.
func (u *Updater) finish(managed map[string]record) error {
	needed, slots, directories := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range managed {
		needed[r.Origin.Slot] = true
	}
	for _, s := range u.journal.Steps {
		if s.Slot != "" {
			slots[s.new()], slots[s.old()], slots[s.temporary()] = true, true, true
		}
	}
	for _, records := range []map[string]record{u.journal.Managed, u.journal.Next} {
		for _, r := range records {
			slots[r.Origin.Slot] = true
		}
	}
	delete(slots, "")
	for slot := range slots {
		if needed[slot] {
			continue
		}
		if found, err := u.stat(slot); err != nil || found == nil {
			if err != nil {
				return err
			}
			continue
		}
		directories[path.Dir(slot)] = true
		if err := u.remove(slot); err != nil {
			return err
		}
	}
	if err := u.sync(slices.Sorted(maps.Keys(directories))...); err != nil {
		return err
	}
	for directory := range directories {
		if path.Base(directory) != foreignSlotsName {
			continue
		}
		if err := u.remove(directory); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	ended := &journal{Sequence: u.journal.Sequence, Phase: idle, Managed: managed}
	if err := u.writeJournal(u.state, ended); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	u.journal = ended
	return nil
}
