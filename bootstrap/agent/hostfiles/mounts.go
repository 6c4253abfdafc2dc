package hostfiles

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// remote are the types of file systems that can stop answering for ever, besides FUSE: what is behind them is not the
// kernel of this host.
var remote = []string{"9p", "afs", "ceph", "cifs", "lustre", "nfs", "nfs4", "smb3"} //nolint:misspell // the name of a file system

// within are the rules of all paths: they follow no symbolic link, stay below the directory, and enter no mount.
const within = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV

// mounts remembers on which mounts paths can be used.
type mounts struct {
	lock   sync.Mutex
	usable map[mountKey]bool
}

// mountKey identifies a mount: the kernel reuses its ID after it is unmounted.
type mountKey struct {
	id           uint64
	major, minor uint32
}

// forget lets the mounts be looked at again. Call it before each operation.
func (m *mounts) forget() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.usable = nil
}

// check returns an *Obstacle if the mount of a handle is one that can stop answering, such as a FUSE file system, which
// a user other than root can mount in a directory of its own. A system call on it could hang, and can't be interrupted.
// This asks only the kernel.
func (m *mounts) check(handle int, name string) error {
	var stat unix.Statx_t
	// Without a mask, the file system itself is not asked.
	if err := unix.Statx(handle, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &stat); err != nil {
		return fmt.Errorf("find its mount: %w", err)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	key := mountKey{stat.Mnt_id, stat.Dev_major, stat.Dev_minor}
	if m.usable[key] {
		return nil
	}
	kind, options, err := findMount(stat.Mnt_id)
	if err != nil {
		return err
	}
	why := ""
	switch {
	case kind == "":
		why = "something that is being unmounted is mounted there"
	case kind == "fuseblk" || kind == "fuse" || strings.HasPrefix(kind, "fuse."):
		why = "a FUSE file system is mounted there"
		for option := range strings.SplitSeq(options, ",") {
			if user, isUser := strings.CutPrefix(option, "user_id="); isUser {
				why = "a FUSE file system of the user with ID " + user + " is mounted there"
			}
		}
	case slices.Contains(remote, kind):
		why = "a network file system is mounted there"
	default:
		if m.usable == nil {
			m.usable = map[mountKey]bool{}
		}
		m.usable[key] = true
		return nil
	}
	return &Obstacle{"/" + name, why + ", which can stop answering", "unmount it with umount --lazy /" + name + ", or remove what is below from the configuration"}
}

// findMount returns the type and the options of the file system of a mount, nothing if there is no such mount.
func findMount(id uint64) (kind, options string, err error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	defer file.Close()
	prefix := fmt.Sprintf("%d ", id)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if _, rest, isComplete := strings.Cut(lines.Text(), " - "); isComplete && strings.HasPrefix(lines.Text(), prefix) {
			fields := strings.Fields(rest)
			return fields[0], fields[len(fields)-1], nil
		}
	}
	return "", "", lines.Err()
}

// openHandle opens a path below the root.
func (d *disk) openHandle(name string, flags int) (int, error) {
	directory := int(d.root.Fd())
	handle, err := openat2(directory, name, flags, within)
	if !errors.Is(err, unix.EXDEV) {
		return handle, err
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		isLast, wanted := i == len(parts)-1, unix.O_PATH|unix.O_DIRECTORY
		if isLast {
			wanted = flags
		}
		next, err := d.step(directory, part, wanted, path.Join(parts[:i+1]...))
		if i > 0 {
			_ = unix.Close(directory)
		}
		if err != nil || isLast {
			return next, err
		}
		directory = next
	}
	return 0, unix.ENOENT
}

// step opens what has a name in a directory, also if it is a mount, but none that can stop answering. Its whole path is
// for errors.
func (d *disk) step(directory int, part string, flags int, name string) (int, error) {
	handle, err := openat2(directory, part, flags, within)
	if !errors.Is(err, unix.EXDEV) {
		return handle, err
	}
	top, err := openat2(directory, part, unix.O_PATH|flags&unix.O_DIRECTORY, within&^unix.RESOLVE_NO_XDEV)
	if err != nil {
		return 0, err
	}
	if err := d.mounts.check(top, name); err != nil {
		_ = unix.Close(top)
		return 0, err
	}
	if flags&unix.O_PATH != 0 {
		return top, nil
	}
	defer func() { _ = unix.Close(top) }()
	return reopen(top, flags)
}

// isMountPoint reports whether something is mounted at a path, and so hides what is in its directory.
func (d *disk) isMountPoint(name string) (isMount bool, err error) {
	parent, err := d.existingParent(name)
	if err != nil || parent != path.Dir(name) {
		return false, err
	}
	err = d.in("open", name, func(directory int, base string) error {
		handle, err := openat2(directory, base, unix.O_PATH, within)
		if err == nil {
			return unix.Close(handle)
		}
		isMount = errors.Is(err, unix.EXDEV)
		return nil
	})
	return isMount, err
}

// reopen opens what a handle leads to, and nothing else.
func reopen(handle, flags int) (int, error) {
	return unix.Open(nameOf(handle), flags|unix.O_CLOEXEC, 0)
}

// nameOf returns a name of what a handle leads to, also of a symbolic link, for system calls that accept no handle.
func nameOf(handle int) string { return fmt.Sprintf("/proc/self/fd/%d", handle) }

func openat2(directory int, name string, flags int, rules uint64) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Resolve: rules}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	return unix.Openat2(directory, name, how)
}
