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
// Confirm. If it is not possible, Apply returns a *CheckError, and nothing was changed. If it fails, or the host does
// not have what was planned afterwards, it was undone, and the error names the path.
//
// If force is set, paths that were changed since Poolboot wrote them are overwritten. Paths that are left over from
// another update are restored first: what they had is the original, not what they have.
func (u *Updater) Apply(changes []hosttree.Change, force bool) error {
	if u.journal.Phase == idle {
		if err := u.Retry(); err != nil {
			return err
		}
	}
	p, err := u.newPlan(changes, force)
	if err != nil {
		return err
	}
	if err := p.label(); err != nil {
		return err
	}
	applying := *u.journal
	applying.Sequence, applying.Managed, applying.Next, applying.Steps = u.journal.Sequence+1, u.managed(), p.next, p.steps
	u.journal = &applying
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
	return p.syncAll(append(written, slices.Sorted(maps.Keys(directories))...)...)
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
	return p.syncAll(path.Dir(directory))
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
		return errors.Join(p.create(s.new(), file, g.meta, attributes), p.setAttributes(s.new(), s.label()), file.Close())
	}
	label, err := p.labelOf(s)
	if err != nil {
		return err
	}
	if from.symlink != "" {
		return p.symlink(from.symlink, s.new(), g.meta, label)
	}
	return p.create(s.new(), bytes.NewReader(from.contents), g.meta, label)
}

// complete does the steps of a committed update, and verifies the result. Each step can be repeated.
func (u *Updater) complete() error {
	for i := range u.journal.Steps {
		s := &u.journal.Steps[i]
		if err := u.do(s); err != nil {
			return fmt.Errorf("/%s: %w", s.Path, err)
		}
	}
	for _, err := range u.syncSteps(u.journal.Steps) {
		return err
	}
	if err := u.verify(); err != nil {
		return err
	}
	return u.enter(applied)
}

// do does a step, if it was not done.
func (u *Updater) do(s *step) error {
	switch s.Do {
	case put:
		return u.install(s.new(), s)
	case remove:
		isOld, err := u.isAlike(s.old(), s.Path)
		if err != nil || !isOld {
			return err
		}
		return u.remove(s.Path)
	case rmdir:
		return u.removeDirectory(s.Path)
	case mkdir:
		return errors.Join(u.mkdir(s.Path, *s.After), u.setAttributes(s.Path, s.label()))
	case setMeta:
		return u.setMeta(s.Path, *s.After)
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
	if err := u.rename(s.temporary(), s.Path); err != nil {
		return errors.Join(err, u.remove(s.temporary()))
	}
	return nil
}

// removeDirectory removes an empty directory, and nothing else.
func (u *Updater) removeDirectory(name string) error {
	if found, err := u.stat(name); err != nil || !isDirectory(found) {
		return err
	}
	return u.remove(name)
}

// verify checks that the host has what was planned at the paths of the steps: a step can have no effect, on some file
// systems or because something else happens at its path, and some disks lose what they confirmed.
func (u *Updater) verify() error {
	last := map[string]*step{}
	for i := range u.journal.Steps {
		last[u.journal.Steps[i].Path] = &u.journal.Steps[i]
	}
	for name, s := range last {
		isThere, err := u.isDone(s)
		if err == nil && !isThere {
			err = errors.New("it is not as it was prepared: find what changes it, or prevents a change")
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	for name, r := range u.journal.Next {
		if last[r.Real] == nil {
			continue
		}
		if kinds, err := u.differences(r.Real, &r.state, u.contents); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		} else if len(kinds) > 0 {
			return fmt.Errorf("%s: it is not as it was prepared: %v", name, kinds)
		}
	}
	return nil
}

// isDone reports whether a path is as a step leaves it.
func (u *Updater) isDone(s *step) (bool, error) {
	if s.Do == put {
		return u.isAlike(s.new(), s.Path)
	}
	found, err := u.stat(s.Path)
	if err != nil || s.Do == remove || s.Do == rmdir {
		return found == nil, err
	}
	return found != nil && metaOf(found) == *s.After && (s.Do == setMeta || isDirectory(found)), nil
}

// syncSteps syncs what steps changed, and returns what failed, by the paths of the steps.
func (u *Updater) syncSteps(steps []step) map[string]error {
	failed, changed := map[string]error{}, map[string][]string{}
	for _, s := range steps {
		parent, err := u.existingParent(s.Path)
		if err != nil {
			failed[s.Path] = err
			continue
		}
		changed[parent] = append(changed[parent], s.Path)
		found, err := u.stat(s.Path)
		if err != nil {
			failed[s.Path] = err
		} else if (isDirectory(found) || isRegular(found)) && (s.Do == setMeta || s.Do == mkdir || s.Do == rmdir) {
			changed[s.Path] = append(changed[s.Path], s.Path)
		}
	}
	for name, err := range u.sync(slices.Sorted(maps.Keys(changed))...) {
		for _, of := range changed[name] {
			failed[of] = err
		}
	}
	return failed
}

// discard ends an update of which only slots were prepared.
func (u *Updater) discard() error { return u.finish(u.journal.Managed) }

// finish removes the slots that these records and paths that are left over don't need, and ends the update.
func (u *Updater) finish(managed map[string]record) error {
	ended := &journal{Sequence: u.journal.Sequence, Phase: idle, Managed: managed, LeftOver: u.journal.LeftOver}
	ended.Stale = u.sweep(u.journal.slots(), ended.slots())
	if err := u.writeJournal(u.state, ended); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	u.journal = ended
	return nil
}

// sweep removes slots that are not needed. It returns those that can't be removed now, such as those on a disk that
// failed.
func (u *Updater) sweep(slots, needed map[string]bool) (stale []string) {
	directories := map[string]bool{}
	for _, slot := range slices.Sorted(maps.Keys(slots)) {
		if needed[slot] {
			continue
		}
		found, err := u.stat(slot)
		if err == nil && found != nil {
			directories[path.Dir(slot)] = true
			err = u.remove(slot)
		}
		if err != nil {
			stale = append(stale, slot)
		}
	}
	u.sync(slices.Sorted(maps.Keys(directories))...)
	for directory := range directories {
		if path.Base(directory) == foreignSlotsName {
			_ = u.remove(directory) // it can have other slots
		}
	}
	return stale
}
