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

// namer is who, besides root, can place something at a path.
type namer struct {
	uid uint32
	// isAnyone is set if several users can.
	isAnyone bool
}

// namers returns who can place something else at a path: those who can write in one of its parents. Who owns what is
// there now does not matter: they can move it there.
func (d *disk) namers(name string) (who []namer, err error) {
	directory, err := d.stat(".")
	if err != nil {
		return nil, err
	}
	for end := range len(name) + 1 {
		if end < len(name) && name[end] != '/' {
			continue
		}
		found, err := d.stat(name[:end])
		if err != nil || directory == nil || found == nil {
			return who, err
		}
		isShared := directory.Mode&unix.S_IWOTH != 0 || directory.Mode&unix.S_IWGRP != 0 && directory.Gid != 0
		switch {
		case directory.Uid != 0:
			who = append(who, namer{uid: directory.Uid})
		case !isShared:
		case directory.Mode&unix.S_ISVTX == 0:
			who = append(who, namer{isAnyone: true})
		case found.Uid != 0: // in a directory such as /tmp, only the owner of something can move it
			who = append(who, namer{uid: found.Uid})
		}
		directory = found
	}
	return who, nil
}

// followed is a symbolic link that a user other than root can place, and that resolve follows.
type followed struct {
	link string
	by   namer
	// left is how many parts of the path are left when its target is reached.
	left int
}

// check returns an *Obstacle if a link leads to something that its user does not own. Root follows such a link for
// somebody who can't write there.
func (f followed) check(target *syscall.Stat_t) error {
	if target != nil && target.Uid == f.by.uid && !f.by.isAnyone {
		return nil
	}
	why := fmt.Sprintf("it is a symbolic link that the user with ID %d can place, to something that this user does not own", f.by.uid)
	if f.by.isAnyone {
		why = "it is a symbolic link in a directory in which several users can write"
	}
	return &Obstacle{"/" + f.link, why, "remove it, or change the path in the configuration"}
}

// resolve returns where a path leads, relative to the root: it follows the symbolic links in parents, as if the root
// were /, but not those that isOwn reports, and not the last part of the path. It follows the links that users other
// than root can place only to what they own.
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
		who, err := d.namers(next)
		if err != nil {
			return "", err
		}
		for _, by := range who {
			foreign = append(foreign, followed{next, by, len(rest)})
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
