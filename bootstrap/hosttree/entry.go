package hosttree

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Type is the type of an entry.
type Type string

// Types of entries.
const (
	File      Type = "File"
	Directory Type = "Directory"
	// Link is a symbolic link.
	Link     Type = "Link"
	HardLink Type = "HardLink"
	// Unmasked is the file of a unit that must not be masked: a link to /dev/null is removed, everything else stays.
	Unmasked Type = "Unmasked"
)

// MaskTarget is the target of the link that masks a unit.
const MaskTarget = "/dev/null"

// Entry is what a configuration writes to one path.
type Entry struct {
	Type Type `json:"type"`
	// Mode has permission bits, and special bits as in POSIX. If it is nil, it is the mode of what was there before
	// Poolboot changed it or, if there was nothing, 0644 for files and 0755 for directories.
	Mode *uint32 `json:"mode,omitempty"`
	// UID and GID are the owner and group. If they are nil, they are those of what was there or, if there was nothing,
	// root.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
	// User and Group are set instead if the configuration has their names. Tree.On replaces them by UID and GID.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// Contents are those of a file, decoded. If they are nil, and so are Sources, the file keeps the contents that it
	// had before Poolboot changed it, or is empty. They can be secret.
	Contents []byte `json:"contents,omitzero"`
	// Sources are set instead if the contents are not decoded yet: they are those of all sources, one after the other.
	// Tree.On replaces them by Contents.
	Sources []types.Resource `json:"sources,omitempty"`
	// Appends is set for a file that Ignition appended something to: its contents depend on what was there.
	Appends bool `json:"appends,omitempty"`
	// Target is that of a link. For a hard link, it is an absolute path.
	Target string `json:"target,omitempty"`
	// Replaces is set if Ignition replaced what was at the path, if there was anything. Otherwise it refused to. It
	// matters only for what Ignition wrote, and is no difference between entries.
	Replaces bool `json:"-"`
	// OnlyIfMissing is set for a directory that keeps its mode and owner if it exists.
	OnlyIfMissing bool `json:"onlyIfMissing,omitempty"`
}

// differs reports whether another entry leads to something else on a host.
func (e Entry) differs(other Entry) bool {
	first, second := e, other
	for _, entry := range []*Entry{&first, &second} {
		entry.Replaces, entry.Contents, entry.Sources = false, nil, nil
	}
	return !reflect.DeepEqual(first, second) || !e.hasSameContents(other)
}

// hasSameContents compares contents. It decodes sources only if their notation differs. Sources that can't be decoded,
// such as those at a URL, are the same only in the same notation.
func (e Entry) hasSameContents(other Entry) bool {
	if reflect.DeepEqual(e.Sources, other.Sources) && reflect.DeepEqual(e.Contents, other.Contents) {
		return true
	}
	first, errFirst := e.decode(nil)
	second, errSecond := other.decode(nil)
	return errFirst == nil && errSecond == nil && (first == nil) == (second == nil) && bytes.Equal(first, second)
}

// Tree is what a configuration writes, by path: an absolute one, or one in the home of a user, such as ~core/.ssh,
// before Tree.On.
type Tree map[string]Entry

// Change is what changes at a path.
type Change struct {
	Path string
	// From is the old entry, nil if the path was not configured.
	From *Entry
	// To is the new entry, nil if the path is not configured any more: then it is what it was before Poolboot changed
	// it.
	To *Entry
}

// IsAffected reports whether the entry of a path must be written if these paths differ: a hard link to a file that is
// replaced would still lead to the old file.
func (e *Entry) IsAffected(path string, differs map[string]bool) bool {
	return differs[path] || e.Type == HardLink && differs[e.Target]
}

// Changes returns the paths that differ between two trees, in order, and hard links to files that do. Paths of both
// trees that differ on the host from the first one are among them.
func Changes(from, to Tree, onHost ...string) (changes []Change) {
	differs := map[string]bool{}
	for _, path := range onHost {
		differs[path] = true
	}
	for path, old := range from {
		if _, stays := to[path]; !stays {
			differs[path] = true
			changes = append(changes, Change{Path: path, From: &old})
		}
	}
	for path, entry := range to {
		if old, existed := from[path]; !existed || old.differs(entry) {
			differs[path] = true
		}
	}
	for path, entry := range to {
		if entry.IsAffected(path, differs) {
			change := Change{Path: path, To: &entry}
			if old, existed := from[path]; existed {
				change.From = &old
			}
			changes = append(changes, change)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// Paths returns the paths of a tree, a directory before what is in it.
func (t Tree) Paths() []string {
	return slices.SortedFunc(maps.Keys(t), CompareDepth)
}

// CompareDepth compares paths by their depth, and then by their names.
func CompareDepth(a, b string) int {
	return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
}
