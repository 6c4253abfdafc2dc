package update

import (
	"iter"
	"maps"
	"path"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Kind is the kind of an entry of a configuration.
type Kind string

// Kinds of entries, in the order of a plan. Entries of the kinds before KindFile have no name.
const (
	KindRestart                 Kind = "restart"
	KindOSReboot                Kind = "reboot of the operating system"
	KindFIPS                    Kind = "fips"
	KindKernelArguments         Kind = "kernelArguments"
	KindExtensions              Kind = "extensions"
	KindKernelType              Kind = "kernelType"
	KindOSImage                 Kind = "osImageURL"
	KindExtensionsImage         Kind = "baseOSExtensionsContainerImage"
	KindIgnitionKernelArguments Kind = "config.kernelArguments"
	KindFile                    Kind = "file"
	KindDirectory               Kind = "directory"
	KindLink                    Kind = "link"
	KindUnit                    Kind = "unit"
	KindUser                    Kind = "user"
	KindGroup                   Kind = "group"
	KindDisk                    Kind = "disk"
	KindRAID                    Kind = "RAID"
	KindLUKS                    Kind = "LUKS volume"
	KindFilesystem              Kind = "filesystem"
)

// Item identifies an entry of a configuration.
type Item struct {
	Kind Kind
	// Name is a path, a device, or the name of a unit, user, group or array.
	Name string
}

// String returns the entry for messages.
func (e Item) String() string {
	if e.Name == "" {
		return string(e.Kind)
	}
	return string(e.Kind) + " " + e.Name
}

// keyed is an entry of Ignition, with the key by which Ignition merges it.
type keyed interface{ Key() string }

// changed yields the entries that differ, by key, in the order of the keys: as they were and as they will be, nil where
// there is none. As in OpenShift, it compares the notation: another encoding of the same contents is a difference, and
// false is not the same as a field that is not set. But an empty list is the same as none, and the order of entries
// does not matter. Unlike in OpenShift, neither does whether a file or link overwrote what Ignition found at its path:
// that matters only when a host is installed.
//
// Entries that differ on the host count, too.
func changed[T keyed](before, after []T, onHost differing) iter.Seq2[*T, *T] {
	return func(yield func(*T, *T) bool) {
		for old, now := range pairs(before, after) {
			if (!isSame(old, now) || onHost[path.Clean(keyOf(old, now))]) && !yield(old, now) {
				return
			}
		}
	}
}

// differing are the paths at which a host differs from its configuration, and the units whose files or drop-ins they
// are.
type differing map[string]bool

func newDiffering(paths []string) differing {
	names := differing{}
	for _, name := range paths {
		names[name] = true
		if unit := hosttree.UnitOf(name); unit != "" {
			names[unit] = true
		}
	}
	return names
}

// units returns the units of a configuration as the host has them: one without a file of its own that differs is
// enabled or masked otherwise.
func (d differing) units(units []types.Unit) []types.Unit {
	return slices.DeleteFunc(slices.Clone(units), func(unit types.Unit) bool {
		return d[path.Join(hosttree.UnitDirectory, unit.Name)] && ptr.Deref(unit.Contents, "") == ""
	})
}

// pairs yields all entries, as changed does.
func pairs[T keyed](before, after []T) iter.Seq2[*T, *T] {
	from, to := byKey(before), byKey(after)
	all := maps.Clone(from)
	maps.Copy(all, to)
	return func(yield func(*T, *T) bool) {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if !yield(from[key], to[key]) {
				return
			}
		}
	}
}

func byKey[T keyed](entries []T) map[string]*T {
	keys := make(map[string]*T, len(entries))
	for i := range entries {
		keys[entries[i].Key()] = &entries[i]
	}
	return keys
}

// isSame reports whether both entries exist and have the same notation, but for overwrite.
func isSame[T any](a, b *T) bool {
	return a != nil && b != nil && ignition.Equal(withoutOverwrite(*a), withoutOverwrite(*b))
}

// withoutOverwrite returns an entry without overwrite. A directory keeps it: it decides what is in the directory.
func withoutOverwrite[T any](entry T) T {
	switch entry := any(&entry).(type) {
	case *types.File:
		entry.Overwrite = nil
	case *types.Link:
		entry.Overwrite = nil
	}
	return entry
}

// keyOf returns the key of an entry that exists before or after a change.
func keyOf[T keyed](before, after *T) string {
	if after != nil {
		return (*after).Key()
	}
	return (*before).Key()
}
