package hostfiles

import (
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lookup looks at paths of a host with the rules of an Updater: it enters no mount that can stop answering, and follows
// the links of users only to what they own. It needs no lock.
type Lookup struct{ disk disk }

// NewLookup returns a Lookup of a host, which must be closed.
func NewLookup(root *os.Root) (*Lookup, error) {
	handle, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	return &Lookup{disk{root: handle}}, nil
}

// Close ends the Lookup.
func (l *Lookup) Close() error { return l.disk.root.Close() }

// Stat returns what is at an absolute path, without following a link there. The error is ENOENT if there is nothing.
func (l *Lookup) Stat(name string) (*syscall.Stat_t, error) {
	_, found, err := l.disk.find(name)
	if err == nil && found == nil {
		err = unix.ENOENT
	}
	return found, err
}

// Directory is Stat of a directory to which an absolute path leads, also through a link. The error is ENOTDIR if it
// leads to something else.
func (l *Lookup) Directory(name string) (*syscall.Stat_t, error) {
	real, err := l.disk.follow(path.Join(name, "x"))
	if err != nil {
		return nil, err
	}
	found, err := l.disk.stat(path.Dir(real))
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, unix.ENOENT
	case !isDirectory(found):
		return nil, unix.ENOTDIR
	}
	return found, nil
}
