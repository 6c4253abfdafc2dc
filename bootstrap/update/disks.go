package update

import (
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// KeepDisks returns a configuration with the disks of a host in place of its own, and what of its own the host does not
// get: a host partitions and formats disks only when it is installed. The mount units of file systems that differ are
// those of the host, too. Otherwise, a device that does not exist, or a mount that is missing, would take the host to
// emergency mode at its next boot, where nothing undoes an update, or let programs begin with an empty directory.
func (c Config) KeepDisks(host Config) (kept Config, outdated []Item) {
	from, to := host.Ignition, c.Ignition
	outdated = diskDifferences(from.Storage, to.Storage)
	if len(outdated) == 0 {
		return c, nil
	}
	kept = c
	storage := &kept.Ignition.Storage
	storage.Disks, storage.Raid, storage.Luks, storage.Filesystems = from.Storage.Disks, from.Storage.Raid, from.Storage.Luks, from.Storage.Filesystems
	var differing []types.Filesystem
	for old, now := range changed(from.Storage.Filesystems, to.Storage.Filesystems, nil) {
		for _, filesystem := range []*types.Filesystem{old, now} {
			if filesystem != nil {
				differing = append(differing, *filesystem)
			}
		}
	}
	mounts := map[string]bool{} // the names of their units, without their types
	for _, of := range slices.Concat(from.Systemd.Units, to.Systemd.Units) {
		if slices.ContainsFunc(differing, func(filesystem types.Filesystem) bool { return mountsFilesystem(of, filesystem) }) {
			mounts[strings.TrimSuffix(of.Name, path.Ext(of.Name))] = true
		}
	}
	units := slices.Clone(to.Systemd.Units)
	for old, now := range changed(from.Systemd.Units, to.Systemd.Units, nil) {
		name := keyOf(old, now)
		if !isMount(name) || !mounts[strings.TrimSuffix(name, path.Ext(name))] {
			continue
		}
		outdated = append(outdated, Item{KindUnit, name})
		units = slices.DeleteFunc(units, func(of types.Unit) bool { return of.Name == name })
		if old != nil {
			units = append(units, *old)
		}
	}
	kept.Ignition.Systemd.Units = units
	return kept, outdated
}

// isMount reports whether a unit mounts or activates a file system.
func isMount(name string) bool {
	return slices.Contains([]string{".mount", ".automount", ".swap"}, path.Ext(name))
}

// mountsFilesystem reports whether a unit mounts or activates a file system, or has its path.
func mountsFilesystem(of types.Unit, filesystem types.Filesystem) bool {
	if !isMount(of.Name) {
		return false
	}
	at := ptr.Deref(filesystem.Path, "")
	if at != "" && strings.TrimSuffix(of.Name, path.Ext(of.Name)) == unit.UnitNamePathEscape(at) {
		return true
	}
	sources := []string{filesystem.Device}
	if label := ptr.Deref(filesystem.Label, ""); label != "" {
		sources = append(sources, "/dev/disk/by-label/"+label)
	}
	if uuid := strings.ToLower(ptr.Deref(filesystem.UUID, "")); uuid != "" {
		sources = append(sources, "/dev/disk/by-uuid/"+uuid)
	}
	return slices.ContainsFunc(ignition.MountSources(of), func(source string) bool {
		if tag, value, isTag := strings.Cut(source, "="); isTag && !path.IsAbs(source) { // LABEL, UUID, PARTLABEL or PARTUUID
			source = "/dev/disk/by-" + strings.ToLower(tag) + "/" + value
		}
		return slices.Contains(sources, source)
	})
}

// diskDifferences returns what differs in the lists about disks. The order of each list is part of it: an item without
// a name stands for the order.
func diskDifferences(before, after types.Storage) []Item {
	return slices.Concat(
		listDifferences(KindDisk, before.Disks, after.Disks),
		listDifferences(KindRAID, before.Raid, after.Raid),
		listDifferences(KindLUKS, before.Luks, after.Luks),
		listDifferences(KindFilesystem, before.Filesystems, after.Filesystems),
	)
}

func listDifferences[T keyed](kind Kind, before, after []T) (items []Item) {
	for old, now := range changed(before, after, nil) {
		items = append(items, Item{kind, keyOf(old, now)})
	}
	if len(items) == 0 && !slices.EqualFunc(before, after, ignition.Equal) {
		items = append(items, Item{Kind: kind})
	}
	return items
}
