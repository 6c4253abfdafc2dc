package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"strings"
	"sync"
	"syscall"

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
	// AdditionalDropIn is a drop-in of a configured unit that the configuration does not contain.
	AdditionalDropIn Kind = "AdditionalDropIn"
)

// Difference is a path that differs from its configuration.
type Difference struct {
	Path string
	Kind Kind
}

// String returns the difference for messages.
func (d Difference) String() string { return d.Path + ": " + string(d.Kind) }

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

// compare returns how a path differs from its state. It calls read functions only if they matter: sum for the hash of
// the contents, target for the target of a link, and original for the file that a hard link leads to.
func (s *state) compare(stat *syscall.Stat_t, sum, target func() (string, error), original func() (*syscall.Stat_t, error)) (kinds []Kind, err error) {
	var want uint32
	switch s.Type {
	case hosttree.Unmasked:
		if !isLink(stat) {
			return nil, nil
		}
		if got, err := target(); err != nil || got != hosttree.MaskTarget {
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
		if file, err := original(); err != nil || file == nil || file.Ino != stat.Ino || file.Dev != stat.Dev {
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
		if got, err := target(); err != nil {
			return nil, err
		} else if got != s.Target {
			kinds = append(kinds, LinkTarget)
		}
	case s.Sum != "" && s.Size != stat.Size:
		kinds = append(kinds, Content)
	case s.Sum != "":
		if got, err := sum(); err != nil {
			return nil, err
		} else if got != s.Sum {
			kinds = append(kinds, Content)
		}
	}
	return kinds, nil
}

// differences returns how what is at a real path differs from a state.
func (d *disk) differences(real string, want *state) ([]Kind, error) {
	found, err := d.stat(real)
	if err != nil {
		return nil, err
	}
	return want.compare(found,
		func() (string, error) { return d.sum(real) },
		func() (string, error) { return d.readlink(real) },
		func() (*syscall.Stat_t, error) { return d.hardLinkTarget(want.Target) })
}

// sum returns the hash of a file.
func (d *disk) sum(name string) (string, error) {
	file, err := d.open(name, syscall.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return "", err
	}
	return sumAndClose(file)
}

// buffers are for reading files.
var buffers = sync.Pool{New: func() any { buffer := make([]byte, 64<<10); return &buffer }}

func sumAndClose(file io.ReadCloser) (string, error) {
	hash, buffer := sha256.New(), buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	// A file would bring its own buffer.
	_, err := io.CopyBuffer(hash, struct{ io.Reader }{file}, *buffer)
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, file.Close())
}

// isDropIn returns the unit of a drop-in below the directory of units.
func isDropIn(name string) (unit string, ok bool) {
	directory, isInUnits := strings.CutPrefix(path.Dir(name), hosttree.UnitDirectory+"/")
	if !isInUnits || strings.Contains(directory, "/") || path.Ext(name) != ".conf" {
		return "", false
	}
	return strings.CutSuffix(directory, ".d")
}
