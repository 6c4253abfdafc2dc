package hostfiles

import (
	"fmt"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path can lead through, as in the kernel.
const maxLinks = 40

// followed is a symbolic link of a user other than root that resolve follows.
type followed struct {
	link string
	uid  uint32
	// left is how many parts of the path are left when its target is reached.
	left int
}

// check returns an *Obstacle if a link leads to something that its user does not own. Root follows such a link for
// somebody who can't write there.
func (f followed) check(target *syscall.Stat_t) error {
	if target != nil && target.Uid == f.uid {
		return nil
	}
	return &Obstacle{"/" + f.link, fmt.Sprintf("it is a symbolic link of the user with ID %d to something that this user does not own", f.uid),
		"remove it, or change the path in the configuration"}
}

// resolve returns where a path leads, relative to the root: it follows the symbolic links in parents, as if the root
// were /, but not those that isOwn reports, and not the last part of the path. It follows the links of users other than
// root only to what they own.
func (d *disk) resolve(name string, isOwn func(real string) bool) (string, error) {
	rest := strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	real, links := ".", 0
	var foreign []followed
	for len(rest) > 0 {
		for last := len(foreign) - 1; last >= 0 && foreign[last].left >= len(rest); last-- {
			target, err := d.stat(real)
			if err == nil {
				err = foreign[last].check(target)
			}
			if err != nil {
				return "", err
			}
			foreign = foreign[:last]
		}
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			real = path.Dir(real)
			continue
		}
		next := path.Join(real, part)
		found, err := d.stat(next)
		if err != nil {
			return "", err
		}
		if isLink(found) && isOwn(next) {
			if len(foreign) > 0 { // where it leads is only known after the update
				return "", foreign[0].check(nil)
			}
			return path.Join(next, path.Join(rest...)), nil
		}
		if len(rest) == 0 || !isLink(found) {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", name, unix.ELOOP)
		}
		target, err := d.readlink(next)
		if err != nil {
			return "", err
		}
		if found.Uid != 0 {
			foreign = append(foreign, followed{next, found.Uid, len(rest)})
		}
		if path.IsAbs(target) {
			real = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return real, nil
}

// follow is resolve through all links in parents, whoever wrote them.
func (d *disk) follow(name string) (string, error) {
	return d.resolve(name, func(string) bool { return false })
}

// find returns where follow leads, and what is there, nil if nothing is.
func (d *disk) find(name string) (real string, found *syscall.Stat_t, err error) {
	if real, err = d.follow(name); err != nil {
		return "", nil, err
	}
	found, err = d.stat(real)
	return real, found, err
}

// mount returns the ID of the mount that a directory is on.
func (d *disk) mount(directory string) (uint64, error) {
	handle, err := d.open(directory, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer handle.Close()
	var stat unix.Statx_t
	if err := unix.Statx(int(handle.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, fmt.Errorf("%s: find its mount: %w", directory, err)
	}
	return stat.Mnt_id, nil
}

// existingParent returns the nearest parent of a path that is a directory.
func (d *disk) existingParent(name string) (string, error) {
	for {
		name = path.Dir(name)
		found, err := d.stat(name)
		if err != nil || name == "." || isDirectory(found) {
			return name, err
		}
	}
}

// slotDirectory returns the directory for what is prepared for a path: it is on the same mount.
func (d *disk) slotDirectory(name, state string) (string, error) {
	parent, err := d.existingParent(name)
	if err != nil {
		return "", err
	}
	want, err := d.mount(parent)
	if err != nil {
		return "", err
	}
	if own, err := d.mount(state); err != nil || own == want {
		return path.Join(state, slotsName), err
	}
	for end := range parent {
		if parent[end] != '/' {
			continue
		}
		if got, err := d.mount(parent[:end]); err != nil || got == want {
			return path.Join(parent[:end], foreignSlotsName), err
		}
	}
	return path.Join(parent, foreignSlotsName), nil
}
