package hostfiles

import (
	"errors"
	"fmt"
	"path"
	"strings"

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
			if err := p.refuse(p.checkParent(parent, p.configured(s.Path))); err != nil {
				return err
			}
		}
		if err := p.refuse(p.checkAttributes(s.Path)); err != nil {
			return err
		}
	}
	return nil
}

// configured returns the path in the configuration because of which a path is changed.
func (p *plan) configured(real string) string {
	for _, g := range p.goals {
		if g.real == real || strings.HasPrefix(g.real, real+"/") {
			return g.path
		}
	}
	return path.Join("/", real)
}

// checkParent refuses a path, as the configuration has it, if nothing can be written to the directory that it is in.
func (p *plan) checkParent(parent, name string) error {
	directory, err := p.open(parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer directory.Close()
	err = unix.Faccessat(int(directory.Fd()), ".", unix.W_OK, 0)
	if errors.Is(err, unix.EROFS) {
		return &Obstacle{name, "its file system is read-only", "mount it writable, or remove its paths from the configuration"}
	}
	if err := p.checkAttributes(parent); err != nil {
		return err
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return &Obstacle{name, fmt.Sprintf("nothing can be written to /%s (%s)", parent, reasonOf(err)), "correct it on the host, or remove the path from the configuration"}
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
