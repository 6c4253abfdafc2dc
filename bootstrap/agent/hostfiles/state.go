package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// Kind is how a path differs from its configuration.
type Kind string

// Kinds of differences.
const (
	Missing    Kind = "Missing"
	Type       Kind = "Type"
	Content    Kind = "Content"
	Mode       Kind = "Mode"
	Owner      Kind = "Owner"
	LinkTarget Kind = "LinkTarget"
	// Capabilities is a file that gives capabilities to who runs it: a configuration never does.
	Capabilities Kind = "Capabilities"
	// AdditionalDropIn is a drop-in of a configured unit that the configuration does not contain.
	AdditionalDropIn Kind = "AdditionalDropIn"
	// Unreadable is a path of which it is not known whether it differs.
	Unreadable Kind = "Unreadable"
	// NotRestored is a path that the undo of an update could not restore.
	NotRestored Kind = "NotRestored"
)

// Difference is a path that differs from its configuration.
type Difference struct {
	Path string
	Kind Kind
	// Why is set for Unreadable and NotRestored. It says what to do, as far as that is known.
	Why string
}

// String returns the difference for messages.
func (d Difference) String() string {
	if d.Why != "" {
		return d.Path + ": " + string(d.Kind) + ": " + d.Why
	}
	return d.Path + ": " + string(d.Kind)
}

// state is the configured state of a path. What is not set can be anything.
type state struct {
	Type   hosttree.Type `json:"type"`
	Mode   *uint32       `json:"mode,omitempty"`
	UID    *int          `json:"uid,omitempty"`
	GID    *int          `json:"gid,omitempty"`
	Size   int64         `json:"size,omitempty"`
	Sum    string        `json:"sum,omitempty"`
	Target string        `json:"target,omitempty"`
}

// stateOf returns the state that an entry describes.
func stateOf(entry hosttree.Entry) state {
	s := state{Type: entry.Type, Mode: entry.Mode, UID: entry.UID, GID: entry.GID, Target: entry.Target}
	if entry.Contents != nil {
		s.Size, s.Sum = int64(len(entry.Contents)), sumOf(entry.Contents)
	}
	if entry.OnlyIfMissing || entry.Type == hosttree.HardLink {
		s.Mode, s.UID, s.GID = nil, nil, nil
	}
	if entry.Type == hosttree.Link {
		s.Mode = nil
	}
	return s
}

func sumOf(contents []byte) string {
	sum := sha256.Sum256(contents)
	return hex.EncodeToString(sum[:])
}

// contents is what matters of the contents of a file.
type contents struct {
	sum string
	// hasCapabilities is set if the file has the attribute security.capability.
	hasCapabilities bool
}

// differences returns how what is at a real path differs from a state. read returns the contents of a file
// of a size.
func (d *disk) differences(real string, s *state, read func(real string, size int64) (contents, error)) (kinds []Kind, err error) {
	stat, err := d.stat(real)
	if err != nil {
		return nil, err
	}
	var want uint32
	switch s.Type {
	case hosttree.Unmasked:
		if isMask, err := d.isMask(stat, real); err != nil || !isMask {
			return nil, err
		}
		return []Kind{Type}, nil
	case hosttree.Directory:
		want = syscall.S_IFDIR
	case hosttree.Link:
		want = syscall.S_IFLNK
	default:
		want = syscall.S_IFREG
	}
	switch {
	case stat == nil:
		return []Kind{Missing}, nil
	case s.Type == hosttree.HardLink:
		if file, err := d.hardLinkTarget(s.Target); err != nil || file == nil || file.Ino != stat.Ino || file.Dev != stat.Dev {
			return []Kind{LinkTarget}, err
		}
		return nil, nil
	case stat.Mode&syscall.S_IFMT != want:
		return []Kind{Type}, nil
	}
	if s.Mode != nil && *s.Mode != stat.Mode&0o7777 {
		kinds = append(kinds, Mode)
	}
	if s.UID != nil && *s.UID != int(stat.Uid) || s.GID != nil && *s.GID != int(stat.Gid) {
		kinds = append(kinds, Owner)
	}
	switch {
	case s.Type == hosttree.Link:
		if got, err := d.readlink(real); err != nil {
			return kinds, err
		} else if got != s.Target {
			kinds = append(kinds, LinkTarget)
		}
	case s.Sum != "" && s.Size != stat.Size:
		kinds = append(kinds, Content)
	case s.Sum != "":
		got, err := read(real, s.Size)
		if err != nil {
			return kinds, err
		}
		if got.sum != s.Sum {
			kinds = append(kinds, Content)
		}
		if got.hasCapabilities {
			kinds = append(kinds, Capabilities)
		}
	}
	return kinds, nil
}

// contents reads a regular file of a size.
func (d *disk) contents(name string, size int64) (contents, error) {
	file, _, err := d.openRegular(name)
	if err != nil {
		return contents{}, err
	}
	return readAndClose(file, size)
}

// buffers are for reading files.
var buffers = sync.Pool{New: func() any { buffer := make([]byte, 64<<10); return &buffer }}

// readAndClose reads a file of which the size is known, and no more, whatever others write to it meanwhile.
func readAndClose(file *os.File, size int64) (got contents, err error) {
	hash, buffer := sha256.New(), buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	// A file would bring its own buffer.
	_, err = io.CopyBuffer(hash, struct{ io.Reader }{io.LimitReader(file, size+1)}, *buffer)
	got.sum = hex.EncodeToString(hash.Sum(nil))
	if err == nil {
		_, err = unix.Fgetxattr(int(file.Fd()), capabilities, nil)
		got.hasCapabilities, err = err == nil, ignoreNoAttribute(err)
	}
	return got, errors.Join(err, file.Close())
}

// isDropIn returns the unit of a drop-in below the directory of units.
func isDropIn(name string) (unit string, ok bool) {
	directory, isInUnits := strings.CutPrefix(path.Dir(name), hosttree.UnitDirectory+"/")
	if !isInUnits || strings.Contains(directory, "/") || path.Ext(name) != ".conf" {
		return "", false
	}
	return strings.CutSuffix(directory, ".d")
}
