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
	contents
}

// Differences returns how the host differs from its configuration, by path, and never contents. For these units, and
// those of which the configuration has a file, it also returns additional drop-ins. A path that can't be compared is a
// difference, too, and does not keep the others from being compared. What users of the host do with their files can't
// make the check wait, or read more than the configuration has.
//
// Contents are read only if something changed since the last call: their hashes are remembered in memory.
func (u *Updater) Differences(units ...string) ([]Difference, error) {
	u.mounts.forget()
	check, err := u.newCheck()
	if err != nil {
		return nil, err
	}
	defer check.close()
	for _, left := range u.LeftOver() {
		check.found = append(check.found, Difference{left.Path, NotRestored, left.Why})
	}
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
		if err := check.failed(name, check.compare(name, &r)); err != nil {
			return nil, err
		}
	}
	for unit := range inUnits {
		directory := path.Join(hosttree.UnitDirectory, unit+".d")
		if err := check.failed(directory, check.findDropIns(directory, managed)); err != nil {
			return nil, err
		}
	}
	u.sums = check.sums
	slices.SortFunc(check.found, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(check.found), nil
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
		drifted[difference.Path] = drifted[difference.Path] || difference.Kind != Unreadable && difference.Kind != NotRestored
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
		current = path.Join(current, part)
		handle, err := c.step(top.handle, part, unix.O_PATH|unix.O_DIRECTORY, current)
		if err != nil {
			return 0, err
		}
		top = openDirectory{current, handle}
		c.open = append(c.open, top)
	}
	return top.handle, nil
}

// failed adds a path that can't be compared, with an error. It returns an error of the process, which says nothing
// about the path.
func (c *check) failed(name string, err error) error {
	if isOfProcess(err) {
		return err
	}
	if err != nil {
		c.found = append(c.found, Difference{name, Unreadable, reasonOf(err)})
	}
	return nil
}

// compare adds the differences of a path.
func (c *check) compare(name string, r *record) error {
	directory, err := c.enter(path.Dir(r.Real))
	if errors.Is(err, unix.ENOTDIR) {
		return c.findParent(r.Real)
	}
	handle := -1
	if err == nil {
		handle, err = c.step(directory, path.Base(r.Real), unix.O_PATH, r.Real)
	}
	var stat *syscall.Stat_t
	if err == nil {
		defer func() { _ = unix.Close(handle) }()
		stat = &syscall.Stat_t{}
		err = os.NewSyscallError("fstat", syscall.Fstat(handle, stat))
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	kinds, err := r.compare(stat,
		func() (contents, error) { return c.readAt(handle, r.Real, stat) },
		func() (string, error) { return c.readlink(r.Real) },
		func() (*syscall.Stat_t, error) { return c.hardLinkTarget(r.Target) })
	for _, kind := range kinds {
		c.found = append(c.found, Difference{Path: name, Kind: kind})
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
			c.found = append(c.found, Difference{Path: "/" + real[:end], Kind: Type})
			break
		}
	}
	return nil
}

// readAt returns the contents of the file of a handle, from memory if the file did not change.
func (c *check) readAt(handle int, real string, stat *syscall.Stat_t) (contents, error) {
	now := fingerprint{inode: stat.Ino, size: stat.Size, mtime: stat.Mtim, ctime: stat.Ctim}
	last := c.known[real]
	now.contents = last.contents
	if last == now {
		c.sums[real] = last
		return last.contents, nil
	}
	readable, err := reopen(handle, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return contents{}, os.NewSyscallError("open", err)
	}
	if now.contents, err = readAndClose(os.NewFile(uintptr(readable), real), stat.Size); err != nil {
		return contents{}, err
	}
	if time.Since(time.Unix(stat.Ctim.Unix())) > settled {
		c.sums[real] = now
	}
	return now.contents, nil
}

// hardLinkTarget returns what a hard link leads to.
func (d *disk) hardLinkTarget(target string) (*syscall.Stat_t, error) {
	_, found, err := d.find(target)
	if _, isObstacle := errors.AsType[*Obstacle](err); isObstacle {
		return nil, nil // it leads where the configuration does not
	}
	return found, err
}

// findDropIns adds the drop-ins of the directory of a unit that the configuration does not contain.
func (c *check) findDropIns(directory string, managed map[string]record) error {
	real, found, err := c.find(directory)
	if err != nil || !isDirectory(found) {
		return err
	}
	names, err := c.list(real)
	for _, name := range names {
		dropIn := path.Join(directory, name)
		if _, ok := isDropIn(dropIn); !ok {
			continue
		}
		if _, isManaged := managed[dropIn]; !isManaged {
			c.found = append(c.found, Difference{Path: dropIn, Kind: AdditionalDropIn})
		}
	}
	return err
}
