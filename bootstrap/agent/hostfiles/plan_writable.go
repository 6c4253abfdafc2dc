package hostfiles

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// checkWritable refuses paths that can't be changed: on read-only mounts, or with the attribute "immutable".
func (p *plan) checkWritable() error {
	checked := map[string]bool{}
	for _, s := range p.steps {
		parent, err := p.existingParent(s.Path)
		if err != nil {
			return err
		}
		if !checked[parent] {
			checked[parent] = true
			if err := p.refuse(p.checkParent(parent)); err != nil {
				return err
			}
		}
		if err := p.refuse(p.checkAttributes(s.Path)); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) checkParent(parent string) error {
	directory, err := p.open(parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer directory.Close()
	err = unix.Faccessat(int(directory.Fd()), ".", unix.W_OK, 0)
	if errors.Is(err, unix.EROFS) {
		return &Obstacle{path.Join("/", parent), "its file system is read-only", "mount it writable, or remove its paths from the configuration"}
	}
	if err := p.checkAttributes(parent); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("/%s: %w", parent, err)
	}
	return nil
}

// checkAttributes refuses a file or directory that has the attribute "immutable" or "append only".
func (p *plan) checkAttributes(real string) error {
	if found, err := p.stat(real); err != nil || found == nil {
		return err
	}
	var stat unix.Statx_t
	err := p.handle("statx", real, func(handle int) error {
		return unix.Statx(handle, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &stat)
	})
	switch {
	case err != nil:
		return fmt.Errorf("/%s: %w", real, err)
	case stat.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0:
		return &Obstacle{path.Join("/", real), "it is immutable", "remove the attribute with chattr -ia /" + real}
	}
	return nil
}
