package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// selinuxLabel is the extended attribute with the SELinux label of a file.
const selinuxLabel = "security.selinux"

// capabilities is the extended attribute with the capabilities of a program.
const capabilities = "security.capability"

// parallelSyncs is how many files are synced at a time.
const parallelSyncs = 16

// disk reads and changes what is below a root directory. Paths are relative to it, and no system call follows a
// symbolic link in them, also if one is placed at the same moment: resolve follows links before. None enters a mount
// that can stop answering.
type disk struct {
	root *os.File
	// before is called before each system call that changes something.
	before func(call, name, other string)
	syncs  int
	mounts mounts
}

// meta is the mode and the owner of a file.
type meta struct {
	Mode uint32 `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

func (d *disk) call(call, name, other string, act func() error) error {
	if d.before != nil {
		d.before(call, name, other)
	}
	return act()
}

// open opens a path.
func (d *disk) open(name string, flags int) (*os.File, error) {
	handle, err := d.openHandle(name, flags)
	if _, isObstacle := errors.AsType[*Obstacle](err); isObstacle {
		return nil, err
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: err}
	}
	return os.NewFile(uintptr(handle), name), nil
}

// handle calls a function with a handle of what is at a path, also of a symbolic link, which can't be read.
func (d *disk) handle(call, name string, act func(handle int) error) error {
	file, err := d.open(name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := act(int(file.Fd())); err != nil {
		return &fs.PathError{Op: call, Path: "/" + name, Err: err}
	}
	return nil
}

// in calls a function with a handle of the directory of a path, and its last part.
func (d *disk) in(call, name string, act func(directory int, base string) error) error {
	directory, err := d.open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer directory.Close()
	if err := act(int(directory.Fd()), path.Base(name)); err != nil {
		return &fs.PathError{Op: call, Path: "/" + name, Err: err}
	}
	return nil
}

// stat returns what is at a path, nil if there is nothing. Below a symbolic link there is nothing.
func (d *disk) stat(name string) (*syscall.Stat_t, error) {
	file, err := d.open(name, unix.O_PATH)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer file.Close()
	found := &syscall.Stat_t{}
	return found, os.NewSyscallError("fstat", syscall.Fstat(int(file.Fd()), found))
}

// readlink returns the target of a symbolic link.
func (d *disk) readlink(name string) (target string, err error) {
	buffer := make([]byte, unix.PathMax)
	err = d.handle("readlink", name, func(handle int) error {
		size, err := unix.Readlinkat(handle, "", buffer)
		target = string(buffer[:max(size, 0)])
		return err
	})
	return target, err
}

// errNotRegular means that something else is where a regular file is expected.
var errNotRegular = errors.New("it is not a regular file")

// openRegular opens a regular file to read it, and nothing else: a device or a pipe could do something, or block.
func (d *disk) openRegular(name string) (*os.File, *syscall.Stat_t, error) {
	found := &syscall.Stat_t{}
	var file *os.File
	err := d.handle("open", name, func(handle int) error {
		if err := syscall.Fstat(handle, found); err != nil {
			return err
		}
		if !isRegular(found) {
			return errNotRegular
		}
		readable, err := reopen(handle, unix.O_RDONLY|unix.O_NONBLOCK)
		if err == nil {
			file = os.NewFile(uintptr(readable), name)
		}
		return err
	})
	return file, found, err
}

// read returns the contents of a regular file of at most limit bytes.
func (d *disk) read(name string, limit int64) ([]byte, error) {
	file, _, err := d.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	contents, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(contents)) > limit {
		err = &fs.PathError{Op: "read", Path: "/" + name, Err: fmt.Errorf("it is larger than %d bytes", limit)}
	}
	return contents, err
}

// isSame reports whether two paths are hard links to one file. Where it says no, they can still be: overlayfs gives two
// names of a file of a lower layer other numbers.
func (d *disk) isSame(a, b string) (bool, error) {
	first, err := d.stat(a)
	if err != nil || first == nil {
		return false, err
	}
	second, err := d.stat(b)
	return second != nil && first.Ino == second.Ino && first.Dev == second.Dev, err
}

// isAlike reports whether two paths are hard links to one file, or have the same type, mode, owner and contents.
func (d *disk) isAlike(a, b string) (bool, error) {
	first, err := d.stat(a)
	if err != nil || first == nil {
		return false, err
	}
	second, err := d.stat(b)
	switch {
	case err != nil || second == nil:
		return false, err
	case first.Ino == second.Ino && first.Dev == second.Dev:
		return true, nil
	case first.Mode != second.Mode || metaOf(first) != metaOf(second) || first.Size != second.Size:
		return false, nil
	}
	read := d.readlink
	if isRegular(first) {
		read = func(name string) (string, error) {
			got, err := d.contents(name, first.Size)
			return got.sum, err
		}
	} else if !isLink(first) {
		return false, nil
	}
	one, err := read(a)
	if err != nil {
		return false, err
	}
	other, err := read(b)
	return one == other, err
}

// create writes a new file. It does not sync it.
func (d *disk) create(name string, contents io.Reader, m meta, attributes map[string]string) error {
	var file *os.File
	err := d.call("create", name, "", func() (err error) {
		file, err = d.open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
		return err
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		d.call("write", name, "", func() error { _, err := io.Copy(file, contents); return err }),
		d.setMeta(name, m),
		d.setAttributes(name, attributes),
	)
	return errors.Join(err, file.Close())
}

func (d *disk) link(from, to string) error {
	return d.call("link", from, to, func() error { return d.between("link", from, to, linkat) })
}

func (d *disk) symlink(target, name string, m meta, attributes map[string]string) error {
	err := d.call("symlink", target, name, func() error {
		return d.in("symlink", name, func(directory int, base string) error { return unix.Symlinkat(target, directory, base) })
	})
	if err != nil {
		return err
	}
	if m.UID != 0 || m.GID != 0 {
		err = d.chown(name, m)
	}
	return errors.Join(err, d.setAttributes(name, attributes))
}

func (d *disk) rename(from, to string) error {
	return d.call("rename", from, to, func() error { return d.between("rename", from, to, unix.Renameat) })
}

func linkat(fromDirectory int, from string, toDirectory int, to string) error {
	return unix.Linkat(fromDirectory, from, toDirectory, to, 0)
}

// between calls a function with handles of the directories of two paths, and their last parts.
func (d *disk) between(call, from, to string, act func(fromDirectory int, from string, toDirectory int, to string) error) error {
	return d.in(call, from, func(fromDirectory int, from string) error {
		return d.in(call, to, func(toDirectory int, to string) error { return act(fromDirectory, from, toDirectory, to) })
	})
}

// remove removes a file or an empty directory. It is no error if there is nothing.
func (d *disk) remove(name string) error {
	found, err := d.stat(name)
	if err != nil || found == nil {
		return err
	}
	flags := 0
	if isDirectory(found) {
		flags = unix.AT_REMOVEDIR
	}
	return d.call("remove", name, "", func() error {
		return d.in("remove", name, func(directory int, base string) error { return unix.Unlinkat(directory, base, flags) })
	})
}

// mkdir creates a directory, if it does not exist, and sets its mode and owner.
func (d *disk) mkdir(name string, m meta) error {
	err := d.call("mkdir", name, "", func() error {
		return d.in("mkdir", name, func(directory int, base string) error { return unix.Mkdirat(directory, base, 0o700) })
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.setMeta(name, m)
}

// setMeta sets the owner, and then the mode: a change of the owner clears special bits.
func (d *disk) setMeta(name string, m meta) error {
	return errors.Join(d.chown(name, m), d.call("chmod", name, "", func() error {
		return d.handle("chmod", name, func(handle int) error { return unix.Chmod(nameOf(handle), m.Mode) })
	}))
}

func (d *disk) chown(name string, m meta) error {
	return d.call("chown", name, "", func() error {
		return d.handle("chown", name, func(handle int) error { return unix.Fchownat(handle, "", m.UID, m.GID, unix.AT_EMPTY_PATH) })
	})
}

// sync syncs files and directories, and returns those that failed. It syncs several at a time: a file system with a
// journal writes them together.
func (d *disk) sync(names ...string) (failed map[string]error) {
	d.syncs += len(names)
	failed = map[string]error{}
	var lock sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelSyncs)
	for _, name := range names {
		act := func() error {
			file, err := d.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
			if err == nil {
				err = errors.Join(file.Sync(), file.Close())
			}
			if err != nil {
				lock.Lock()
				defer lock.Unlock()
				failed[name] = err
			}
			return nil
		}
		if d.before != nil {
			_ = d.call("sync", name, "", act)
			continue
		}
		group.Go(act)
	}
	_ = group.Wait()
	return failed
}

// syncAll is sync with one error.
func (d *disk) syncAll(names ...string) error {
	return errors.Join(slices.Collect(maps.Values(d.sync(names...)))...)
}

// attributes returns all extended attributes of a path, or only the SELinux label.
func (d *disk) attributes(name string, all bool) (attributes map[string]string, err error) {
	err = d.handle("attributes", name, func(handle int) error {
		name, names := nameOf(handle), []string{selinuxLabel}
		if all {
			list := make([]byte, 64<<10)
			size, err := unix.Listxattr(name, list)
			if err != nil {
				return ignoreNoAttribute(err)
			}
			if size == 0 {
				return nil
			}
			names = strings.Split(strings.TrimSuffix(string(list[:size]), "\x00"), "\x00")
		}
		for _, attribute := range names {
			value := make([]byte, 64<<10)
			size, err := unix.Getxattr(name, attribute, value)
			if err != nil {
				if err := ignoreNoAttribute(err); err != nil {
					return err
				}
				continue
			}
			if attributes == nil {
				attributes = map[string]string{}
			}
			attributes[attribute] = string(value[:size])
		}
		return nil
	})
	return attributes, err
}

func (d *disk) setAttributes(name string, attributes map[string]string) (err error) {
	for attribute, value := range attributes {
		err = errors.Join(err, d.call("setxattr", name, attribute, func() error {
			return d.handle("setxattr", name, func(handle int) error {
				err := unix.Setxattr(nameOf(handle), attribute, []byte(value), 0)
				if attribute == selinuxLabel { // without it, all files have the label of the mount
					return ignoreNoAttribute(err)
				}
				return err
			})
		}))
	}
	return err
}

// list returns the names in a directory.
func (d *disk) list(name string) ([]string, error) {
	directory, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	return directory.Readdirnames(-1)
}

func isDirectory(stat *syscall.Stat_t) bool {
	return stat != nil && stat.Mode&syscall.S_IFMT == syscall.S_IFDIR
}
func isRegular(stat *syscall.Stat_t) bool {
	return stat != nil && stat.Mode&syscall.S_IFMT == syscall.S_IFREG
}
func isLink(stat *syscall.Stat_t) bool {
	return stat != nil && stat.Mode&syscall.S_IFMT == syscall.S_IFLNK
}

func metaOf(stat *syscall.Stat_t) meta {
	return meta{Mode: stat.Mode & 0o7777, UID: int(stat.Uid), GID: int(stat.Gid)}
}
