package hostfiles

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// settled is how old a change must be before the hash of a file is remembered. A later change can have the same time:
// the clock of a file system is as coarse as the kernel's timer.
const settled = time.Second

// fingerprint is what changes with the contents of a file, and their hash.
type fingerprint struct {
	inode        uint64
	size         int64
	mtime, ctime syscall.Timespec
	sum          string
}

// Differences returns how the host differs from its configuration, by path, and never contents. For these units, and
// those of which the configuration has a file, it also returns additional drop-ins.
//
// Contents are read only if something changed since the last call: their hashes are remembered in memory.
func (u *Updater) Differences(units ...string) ([]Difference, error) {
	check, err := u.newCheck()
	if err != nil {
		return nil, err
	}
	defer check.close()
	managed := u.managed()
	inUnits := map[string]bool{}
	for _, unit := range units {
		inUnits[unit] = true
	}
	type place struct{ real, name string }
	places := make([]place, 0, len(managed))
	for name, r := range managed {
		places = append(places, place{r.Real, name})
	}
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.real, b.real) })
	for _, place := range places {
		name, r := place.name, managed[place.name]
		if r.Implied {
			continue
		}
		if unit, ok := isDropIn(name); ok {
			inUnits[unit] = true
		} else if path.Dir(name) == hosttree.UnitDirectory && r.Type != hosttree.Directory {
			inUnits[path.Base(name)] = true
		}
		if err := check.compare(name, &r); err != nil {
			return nil, err
		}
	}
	if err := check.findDropIns(inUnits, managed); err != nil {
		return nil, err
	}
	u.sums = check.sums
	slices.SortFunc(check.found, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(check.found), nil
}

// ChangesTo returns what has to change so that the host has a tree: the paths that are recorded otherwise, and those
// that differ on the host. Additional drop-ins are not among them, because Poolboot did not write them. To repair what
// was changed by hand, force the update.
func (u *Updater) ChangesTo(tree hosttree.Tree) ([]hosttree.Change, error) {
	differences, err := u.Differences()
	if err != nil {
		return nil, err
	}
	drifted, differs := map[string]bool{}, map[string]bool{}
	for _, difference := range differences {
		drifted[difference.Path] = true
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

// check is one pass over the paths of a configuration, in the order of their directories.
type check struct {
	*disk
	known, sums map[string]fingerprint
	found       []Difference
	// open are the directories from the root to the current one. No part of their paths is a symbolic link.
	open []openDirectory
}

type openDirectory struct {
	name   string
	handle int
}

func (u *Updater) newCheck() (*check, error) {
	handle, err := unix.FcntlInt(u.root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &check{disk: &u.disk, known: u.sums, sums: make(map[string]fingerprint, len(u.sums)), open: []openDirectory{{".", handle}}}, nil
}

func (c *check) close() {
	for _, directory := range c.open {
		_ = unix.Close(directory.handle)
	}
}

// enter returns a handle of a directory. ENOTDIR means that a part of its path is something else.
func (c *check) enter(name string) (int, error) {
	for last := len(c.open) - 1; last > 0; last-- {
		if top := c.open[last]; name == top.name || strings.HasPrefix(name, top.name+"/") {
			break
		}
		_ = unix.Close(c.open[last].handle)
		c.open = c.open[:last]
	}
	top := c.open[len(c.open)-1]
	if name == top.name {
		return top.handle, nil
	}
	current := top.name
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(name, top.name), "/"), "/") {
		handle, err := unix.Openat(top.handle, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		current = path.Join(current, part)
		top = openDirectory{current, handle}
		c.open = append(c.open, top)
	}
	return top.handle, nil
}

// compare adds the differences of a path.
func (c *check) compare(name string, r *record) error {
	directory, err := c.enter(path.Dir(r.Real))
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return c.findParent(r.Real)
	case errors.Is(err, unix.ENOENT):
		if r.Type != hosttree.Unmasked {
			c.found = append(c.found, Difference{name, Missing})
		}
		return nil
	case err != nil:
		return os.NewSyscallError("openat", err)
	}
	base := path.Base(r.Real)
	stat, err := statAt(directory, base)
	if err != nil {
		return err
	}
	kinds, err := r.compare(stat,
		func() (string, error) { return c.sumAt(directory, r.Real, stat) },
		func() (string, error) { return c.readlink(r.Real) },
		func() (*syscall.Stat_t, error) { return c.hardLinkTarget(r.Target) })
	for _, kind := range kinds {
		c.found = append(c.found, Difference{name, kind})
	}
	return err
}

// findParent adds the parent of a path that is not a directory.
func (c *check) findParent(real string) error {
	for end := range real {
		if real[end] != '/' {
			continue
		}
		found, err := c.stat(real[:end])
		if err != nil {
			return err
		}
		if !isDirectory(found) {
			c.found = append(c.found, Difference{"/" + real[:end], Type})
			break
		}
	}
	return nil
}

// statAt returns what is in a directory, nil if there is nothing.
func statAt(directory int, name string) (*syscall.Stat_t, error) {
	var found unix.Stat_t
	err := unix.Fstatat(directory, name, &found, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return &syscall.Stat_t{
		Dev: found.Dev, Ino: found.Ino, Mode: found.Mode, Uid: found.Uid, Gid: found.Gid, Size: found.Size,
		Mtim: syscall.Timespec(found.Mtim), Ctim: syscall.Timespec(found.Ctim),
	}, os.NewSyscallError("fstatat", err)
}

// sumAt returns the hash of a file, from memory if the file did not change.
func (c *check) sumAt(directory int, real string, stat *syscall.Stat_t) (string, error) {
	now := fingerprint{inode: stat.Ino, size: stat.Size, mtime: stat.Mtim, ctime: stat.Ctim}
	last := c.known[real]
	now.sum = last.sum
	if last == now {
		c.sums[real] = last
		return last.sum, nil
	}
	handle, err := unix.Openat(directory, path.Base(real), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", os.NewSyscallError("openat", err)
	}
	if now.sum, err = sumAndClose(os.NewFile(uintptr(handle), real)); err != nil {
		return "", err
	}
	if time.Since(time.Unix(stat.Ctim.Unix())) > settled {
		c.sums[real] = now
	}
	return now.sum, nil
}

// hardLinkTarget returns what a hard link leads to.
func (d *disk) hardLinkTarget(target string) (*syscall.Stat_t, error) {
	_, found, err := d.find(target)
	if _, isObstacle := errors.AsType[*Obstacle](err); isObstacle {
		return nil, nil // it leads where the configuration does not
	}
	return found, err
}

// findDropIns adds the drop-ins of units that the configuration does not contain.
func (c *check) findDropIns(units map[string]bool, managed map[string]record) error {
	for unit := range units {
		directory := path.Join(hosttree.UnitDirectory, unit+".d")
		real, found, err := c.find(directory)
		if err != nil {
			return err
		}
		if !isDirectory(found) {
			continue
		}
		names, err := c.list(real)
		if err != nil {
			return err
		}
		for _, name := range names {
			dropIn := path.Join(directory, name)
			if _, ok := isDropIn(dropIn); !ok {
				continue
			}
			if _, isManaged := managed[dropIn]; !isManaged {
				c.found = append(c.found, Difference{dropIn, AdditionalDropIn})
			}
		}
	}
	return nil
}
