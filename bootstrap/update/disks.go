package update

import (
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// KeepDisks returns a configuration with the disks of a host in place of its own, and what of its own the host does not
// get: a host partitions and formats disks only when it is installed. The mount units of devices that differ, and the
// lines about them in tables of mounts, are those of the host, too. Otherwise, a device that does not exist, or a mount
// that is missing, would take the host to emergency mode at its next boot, where nothing undoes an update, or let
// programs begin with an empty directory.
func (c Config) KeepDisks(host Config) (kept Config, outdated []Item) {
	from, to := host.Ignition, c.Ignition
	outdated = diskDifferences(from.Storage, to.Storage)
	if len(outdated) == 0 {
		return c, nil
	}
	kept = c
	storage := &kept.Ignition.Storage
	storage.Disks, storage.Raid, storage.Luks, storage.Filesystems = from.Storage.Disks, from.Storage.Raid, from.Storage.Luks, from.Storage.Filesystems
	differing := differingDevices(from.Storage, to.Storage)
	mounts := map[string]bool{} // the names of their units, without their types
	for _, of := range slices.Concat(from.Systemd.Units, to.Systemd.Units) {
		if differing.isMounting(of) {
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
	files := slices.Clone(to.Storage.Files)
	for old, now := range changed(from.Storage.Files, to.Storage.Files, nil) {
		name := keyOf(old, now)
		file := differing.keepFile(name, old, now)
		if file == now {
			continue
		}
		outdated = append(outdated, Item{KindFile, name})
		files = slices.DeleteFunc(files, func(of types.File) bool { return of.Path == name })
		if file != nil {
			files = append(files, *file)
		}
	}
	storage.Files = files
	return kept, outdated
}

// DescribeOutdated describes what a host keeps of its disks, and why, such as "these as installed (…): disk /dev/sdb".
func DescribeOutdated(items []string) string {
	return "these as installed (spec.updates.diskPolicy is NewHostsOnly): " + strings.Join(items, ", ")
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
