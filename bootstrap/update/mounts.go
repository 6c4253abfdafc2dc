package update

import (
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Tables of what the host mounts and unlocks.
const (
	fstab    = "/etc/fstab"
	crypttab = "/etc/crypttab"
)

// devices are those of partitions, arrays, volumes and file systems that differ between two configurations: their names
// in /dev, and the paths of the file systems.
type devices struct{ names, paths map[string]bool }

func differingDevices(from, to types.Storage) devices {
	d := devices{map[string]bool{}, map[string]bool{}}
	add := func(prefix, name string) {
		if name != "" {
			d.names[prefix+name] = true
		}
	}
	for old, now := range changed(from.Disks, to.Disks, nil) {
		for _, partition := range listDiffering(ptr.Deref(old, types.Disk{}).Partitions, ptr.Deref(now, types.Disk{}).Partitions) {
			add("/dev/disk/by-partlabel/", ptr.Deref(partition.Label, ""))
		}
	}
	for _, array := range listDiffering(from.Raid, to.Raid) {
		add("/dev/md/", array.Name)
	}
	for _, volume := range listDiffering(from.Luks, to.Luks) {
		add("/dev/mapper/", volume.Name)
		add("", ptr.Deref(volume.Device, ""))
	}
	for _, filesystem := range listDiffering(from.Filesystems, to.Filesystems) {
		add("", filesystem.Device)
		add("/dev/disk/by-label/", ptr.Deref(filesystem.Label, ""))
		add("/dev/disk/by-uuid/", strings.ToLower(ptr.Deref(filesystem.UUID, "")))
		if at := ptr.Deref(filesystem.Path, ""); at != "" {
			d.paths[path.Clean(at)] = true
		}
	}
	return d
}

// listDiffering returns the items of two lists that differ, as they are in each.
func listDiffering[T keyed](from, to []T) (items []T) {
	for old, now := range changed(from, to, nil) {
		for _, item := range []*T{old, now} {
			if item != nil {
				items = append(items, *item)
			}
		}
	}
	return items
}

// has reports whether the source of a mount is one of the devices, or below the path of one.
func (d devices) has(source string) bool {
	if tag, value, isTag := strings.Cut(source, "="); isTag && !path.IsAbs(source) { // LABEL, UUID, PARTLABEL or PARTUUID
		if value = strings.Trim(value, `"`); tag == "UUID" {
			value = strings.ToLower(value)
		}
		source = "/dev/disk/by-" + strings.ToLower(tag) + "/" + value
	}
	if d.names[source] {
		return true
	}
	for at := source; path.IsAbs(at) && at != "/"; at = path.Dir(at) {
		if d.paths[at] {
			return true
		}
	}
	return false
}

// isMount reports whether a unit mounts or activates a file system.
func isMount(name string) bool {
	return slices.Contains([]string{".mount", ".automount", ".swap"}, path.Ext(name))
}

// isMounting reports whether a unit mounts or activates one of the devices, or has its path.
func (d devices) isMounting(of types.Unit) bool {
	if !isMount(of.Name) {
		return false
	}
	return d.paths[unit.UnitNamePathUnescape(strings.TrimSuffix(of.Name, path.Ext(of.Name)))] || slices.ContainsFunc(ignition.MountSources(of), d.has)
}

// isInLine reports whether a line of a table is about one of the devices.
func (d devices) isInLine(table, line string) bool {
	fields := strings.Fields(line)
	switch {
	case len(fields) < 2 || strings.HasPrefix(fields[0], "#"):
		return false
	case table == crypttab:
		return d.names["/dev/mapper/"+fields[0]] || d.has(fields[1])
	}
	return d.has(fields[0]) || d.paths[path.Clean(strings.ReplaceAll(fields[1], `\040`, " "))]
}

// keepFile returns a file of a configuration as a host has it that keeps the devices: a table has the lines of the host
// about them in place of its own, and the file of a mount unit about one is that of the host. Files can be nil.
func (d devices) keepFile(name string, host, file *types.File) *types.File {
	before, isKnown := tableOf(host)
	after, isAfterKnown := tableOf(file)
	switch {
	case path.Dir(name) == hosttree.UnitDirectory && isMount(name):
		unitOf := func(text string) types.Unit { return types.Unit{Name: path.Base(name), Contents: &text} }
		if d.isMounting(unitOf(before)) || d.isMounting(unitOf(after)) {
			return host
		}
		return file
	case name != fstab && name != crypttab:
		return file
	case !isKnown || !isAfterKnown:
		return host
	}
	var kept strings.Builder
	add := func(text string, isOurs bool) {
		for line := range strings.Lines(text) {
			if d.isInLine(name, line) == isOurs {
				kept.WriteString(line)
			}
		}
	}
	add(after, false)
	if kept.Len() > 0 && !strings.HasSuffix(kept.String(), "\n") {
		kept.WriteString("\n")
	}
	common := kept.Len()
	add(before, true)
	switch {
	case kept.Len() == common && (file == nil || strings.TrimSuffix(kept.String(), "\n") == strings.TrimSuffix(after, "\n")):
		return file
	case file == nil || strings.TrimSpace(kept.String()) == "":
		return host
	}
	changed := *file
	changed.Contents = types.Resource{Source: ptr.To(ignition.DataURL([]byte(kept.String())))}
	if host != nil && kept.String() == before {
		changed.Contents = host.Contents
	}
	return &changed
}

// tableOf returns the contents of a file, "" if it is nil, and whether they are known: they can be at a URL, or what
// the host has already.
func tableOf(file *types.File) (text string, isKnown bool) {
	if file == nil {
		return "", true
	}
	contents, err := hosttree.Decode(file.Contents, nil)
	return string(contents), err == nil && file.Contents.Source != nil && len(file.Append) == 0
}
