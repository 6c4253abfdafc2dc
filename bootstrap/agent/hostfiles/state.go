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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

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
func (d *disk) differences(real string, s *state, read func(real string, size int64) (contents, error)) (kinds []update.DriftKind, err error) {
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
		return []update.DriftKind{update.DriftType}, nil
	case hosttree.Directory:
		want = syscall.S_IFDIR
	case hosttree.Link:
		want = syscall.S_IFLNK
	default:
		want = syscall.S_IFREG
	}
	switch {
	case stat == nil:
		return []update.DriftKind{update.DriftMissing}, nil
	case s.Type == hosttree.HardLink:
		if file, err := d.hardLinkTarget(s.Target); err != nil || file == nil || file.Ino != stat.Ino || file.Dev != stat.Dev {
			return []update.DriftKind{update.DriftLinkTarget}, err
		}
		return nil, nil
	case stat.Mode&syscall.S_IFMT != want:
		return []update.DriftKind{update.DriftType}, nil
	}
	if s.Mode != nil && *s.Mode != stat.Mode&0o7777 {
		kinds = append(kinds, update.DriftMode)
	}
	if s.UID != nil && *s.UID != int(stat.Uid) || s.GID != nil && *s.GID != int(stat.Gid) {
		kinds = append(kinds, update.DriftOwner)
	}
	switch {
	case s.Type == hosttree.Link:
		if got, err := d.readlink(real); err != nil {
			return kinds, err
		} else if got != s.Target {
			kinds = append(kinds, update.DriftLinkTarget)
		}
	case s.Sum != "" && s.Size != stat.Size:
		kinds = append(kinds, update.DriftContent)
	case s.Sum != "":
		got, err := read(real, s.Size)
		if err != nil {
			return kinds, err
		}
		if got.sum != s.Sum {
			kinds = append(kinds, update.DriftContent)
		}
		if got.hasCapabilities {
			kinds = append(kinds, update.DriftCapabilities)
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
