package hostfiles

import (
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// settled is how old a change must be before the hash of a file is remembered. A later change can have the same time:
// the clock of a file system is as coarse as the kernel's timer.
const settled = time.Second

// fingerprint is what changes with the contents of a file, and their hash.
type fingerprint struct {
	inode        uint64
	size         int64
	mtime, ctime syscall.Timespec
	contents
}

// Differences returns how the host differs from its configuration, by path, and never contents. For these units, and
// those of which the configuration has a file, it also returns additional drop-ins. A path that can't be compared is a
// difference, too, and does not keep the others from being compared. What users of the host do with their files can't
// make the check wait, or read more than the configuration has.
//
// Contents are read only if something changed since the last call: their hashes are remembered in memory.
func (u *Updater) Differences(units ...string) (found []update.Drift, err error) {
	u.mounts.forget()
	known := u.sums
	u.sums = make(map[string]fingerprint, len(known))
	read := func(real string, size int64) (contents, error) { return u.readIfChanged(real, size, known[real]) }
	for _, left := range u.LeftOver() {
		found = append(found, update.Drift{Name: left.Path, Kind: update.DriftNotRestored})
	}
	managed := u.managed()
	inUnits := map[string]bool{}
	for _, unit := range units {
		inUnits[unit] = true
	}
	for name, r := range managed {
		if r.Implied {
			continue
		}
		if unit, ok := isDropIn(name); ok {
			inUnits[unit] = true
		} else if path.Dir(name) == hosttree.UnitDirectory && r.Type != hosttree.Directory {
			inUnits[path.Base(name)] = true
		}
		kinds, err := u.differences(r.Real, &r.state, read)
		if slices.Contains(kinds, update.DriftMissing) {
			parent, errParent := u.otherParent(r.Real)
			if err = errParent; parent != "" {
				name, kinds = "/"+parent, []update.DriftKind{update.DriftType}
			}
		}
		if found, err = addDrift(found, name, kinds, err); err != nil {
			return nil, err
		}
	}
	for unit := range inUnits {
		directory := path.Join(hosttree.UnitDirectory, unit+".d")
		dropIns, err := u.findDropIns(directory, managed)
		if found, err = addDrift(found, directory, nil, err); err != nil {
			return nil, err
		}
		found = append(found, dropIns...)
	}
	slices.SortStableFunc(found, func(a, b update.Drift) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(found), nil
}

// ChangesTo returns what has to change so that the host has a tree: the paths that are recorded otherwise, and those
// that differ on the host. Additional drop-ins are not among them, because Poolboot did not write them, and neither are
// paths that are recorded as they should be and can't be compared. To repair what was changed by hand, force the
// update.
func (u *Updater) ChangesTo(tree hosttree.Tree) ([]hosttree.Change, error) {
	differences, err := u.Differences()
	if err != nil {
		return nil, err
	}
	drifted, differs := map[string]bool{}, map[string]bool{}
	for _, difference := range differences {
		drifted[difference.Name] = drifted[difference.Name] || difference.Kind != update.DriftUnreadable && difference.Kind != update.DriftNotRestored
	}
	var changes []hosttree.Change
	for name, r := range u.managed() {
		if _, stays := tree[name]; !stays && !r.Implied {
			changes = append(changes, hosttree.Change{Path: name})
		}
	}
	for _, name := range tree.Paths() {
		r, isManaged := u.managed()[name]
		entry := tree[name]
		for parent := name; parent != "/"; parent = path.Dir(parent) {
			differs[name] = differs[name] || drifted[parent]
		}
		differs[name] = differs[name] || !isManaged || r.Implied || !isSameState(r.state, stateOf(entry))
	}
	for name, entry := range tree {
		if entry.IsAffected(name, differs) {
			changes = append(changes, hosttree.Change{Path: name, To: &entry})
		}
	}
	slices.SortFunc(changes, func(a, b hosttree.Change) int { return strings.Compare(a.Path, b.Path) })
	return changes, nil
}

// DifferencesFrom returns how the host differs from a tree, by path, also in files that Poolboot did not write.
func (u *Updater) DifferencesFrom(tree hosttree.Tree) (found []update.Drift, err error) {
	u.mounts.forget()
	for _, name := range tree.Paths() {
		entry := tree[name]
		if err := checkResolved(name, entry); err != nil {
			return nil, err
		}
		want := stateOf(entry)
		kinds, err := u.differences(u.followed(name), &want, u.contents)
		if found, err = addDrift(found, name, kinds, err); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// addDrift adds how a path differs to what was found, and with an error also that it can't be compared. An error of
// this process says nothing about the path, and is returned.
func addDrift(found []update.Drift, name string, kinds []update.DriftKind, err error) ([]update.Drift, error) {
	if isOfProcess(err) {
		return nil, err
	}
	if err != nil {
		kinds = append(kinds, update.DriftUnreadable)
	}
	for _, kind := range kinds {
		found = append(found, update.Drift{Name: name, Kind: kind})
	}
	return found, nil
}

// otherParent returns the parent of a path that is there and is not a directory, "" if there is none.
func (d *disk) otherParent(real string) (string, error) {
	for end := range real {
		if real[end] != '/' {
			continue
		}
		if found, err := d.stat(real[:end]); err != nil || !isDirectory(found) {
			if found == nil {
				return "", err
			}
			return real[:end], err
		}
	}
	return "", nil
}

// readIfChanged returns the contents of a file of a size, those that are known if it did not change.
func (u *Updater) readIfChanged(real string, size int64, known fingerprint) (contents, error) {
	file, stat, err := u.openRegular(real)
	if err != nil {
		return contents{}, err
	}
	now := fingerprint{inode: stat.Ino, size: stat.Size, mtime: stat.Mtim, ctime: stat.Ctim, contents: known.contents}
	if known == now {
		u.sums[real] = known
		return known.contents, file.Close()
	}
	if now.contents, err = readAndClose(file, size); err == nil && time.Since(time.Unix(stat.Ctim.Unix())) > settled {
		u.sums[real] = now
	}
	return now.contents, err
}

// hardLinkTarget returns what a hard link leads to.
func (d *disk) hardLinkTarget(target string) (*syscall.Stat_t, error) {
	_, found, err := d.find(target)
	if _, isObstacle := errors.AsType[*Obstacle](err); isObstacle {
		return nil, nil // it leads where the configuration does not
	}
	return found, err
}

// findDropIns returns the drop-ins in the directory of a unit that the configuration does not contain.
func (u *Updater) findDropIns(directory string, managed map[string]record) (additional []update.Drift, _ error) {
	real, found, err := u.find(directory)
	if err != nil || !isDirectory(found) {
		return nil, err
	}
	names, err := u.list(real)
	for _, name := range names {
		dropIn := path.Join(directory, name)
		_, isManaged := managed[dropIn]
		if _, ok := isDropIn(dropIn); ok && !isManaged {
			additional = append(additional, update.Drift{Name: dropIn, Kind: update.DriftAdditionalDropIn})
		}
	}
	return additional, err
}
