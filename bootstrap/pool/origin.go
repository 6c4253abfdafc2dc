package pool

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Kind is the kind of an entry of a rendered config.
type Kind string

// Kinds of the entries of a rendered config.
const (
	KindFile                  Kind = "file"
	KindDirectory             Kind = "directory"
	KindLink                  Kind = "link"
	KindUnit                  Kind = "unit"
	KindDropin                Kind = "dropin"
	KindUser                  Kind = "user"
	KindGroup                 Kind = "group"
	KindDisk                  Kind = "disk"
	KindRaid                  Kind = "raid"
	KindLuks                  Kind = "luks"
	KindFilesystem            Kind = "filesystem"
	KindKernelArgument        Kind = "kernelArgument"
	KindRemovedKernelArgument Kind = "removedKernelArgument"
	KindExtension             Kind = "extension"
	KindKernelType            Kind = "kernelType"
	KindOSImageURL            Kind = "osImageURL"
	KindExtensionsImage       Kind = "baseOSExtensionsContainerImage"
	KindFIPS                  Kind = "fips"
)

// Origin is the MachineConfig or the pool that an entry of a rendered config comes from.
type Origin struct {
	// Kind is the kind of the entry.
	Kind Kind `json:"kind"`
	// Name identifies the entry: a path, a name, a device or <unit>.d/<drop-in>. For an entry without a name it is the
	// value.
	Name string `json:"name"`
	// MachineConfig is the name of the last MachineConfig with the entry, which wins. It is empty if the entry comes
	// from a pool.
	MachineConfig string `json:"machineConfig,omitempty"`
	// Pool is the name of the MachineConfigPool that the entry comes from, and Field is its field, for example
	// spec.kubelet.configuration.
	Pool  string `json:"pool,omitempty"`
	Field string `json:"field,omitempty"`
	// Overrides are the names of the earlier MachineConfigs with the same entry, in order. Fields that the last one
	// does not set, such as the mode of a file, keep their values.
	Overrides []string `json:"over,omitempty"`
}

// maxDescribed is how many origins a message names.
const maxDescribed = 3

// DescribeOrigins says where the files, units, disks and file systems come from that a text of an agent names, such as
// the reason why an update failed. It returns "" if it names none.
func DescribeOrigins(origins []Origin, text string) string {
	words := map[string]bool{}
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("\"',;()", c) }) {
		word = strings.TrimRight(word, ".:")
		words[word], words[strings.TrimPrefix(word, "/etc/systemd/system/")] = true, true
	}
	var described []string
	for _, o := range origins {
		unit, _, _ := strings.Cut(o.Name, ".d/")
		isNamed := words[o.Name] || o.Kind == KindDropin && words[unit]
		if !isNamed || !slices.Contains([]Kind{KindFile, KindDirectory, KindLink, KindUnit, KindDropin, KindDisk, KindFilesystem}, o.Kind) {
			continue
		}
		from := "MachineConfig " + o.MachineConfig
		if o.MachineConfig == "" {
			from = o.Field + " of MachineConfigPool " + o.Pool
		}
		described = append(described, fmt.Sprintf("%s %s comes from %s", o.Kind, o.Name, from))
	}
	text = excerpt.List(maxDescribed, described)
	if len(described) > maxDescribed {
		text += ", see kubectl poolboot render --explain"
	}
	return text
}

// entry identifies one entry of a configuration.
type entry struct {
	kind Kind
	name string
}

// slot is the key under which a later entry replaces an earlier one, also if it is of another kind.
func (e entry) slot() entry {
	switch e.kind {
	case KindDirectory, KindLink:
		e.kind = KindFile
	case KindRemovedKernelArgument:
		e.kind = KindKernelArgument
	}
	return e
}

// originsOfIgnition returns the origin of every entry of the merged Ignition of parts.
func originsOfIgnition(whole ignition.Config, parts []part) []Origin {
	latest := make(map[entry]*Origin, len(whole.Storage.Files)+len(whole.Systemd.Units))
	for _, from := range parts {
		visitEntries(from.config, func(e entry, _ string, _ int) {
			before, has := latest[e.slot()]
			now := &Origin{Kind: e.kind, Name: e.name, MachineConfig: from.machineConfig, Pool: from.pool, Field: from.field}
			if has && before.Kind == e.kind {
				now.Overrides = append(before.Overrides, before.MachineConfig) //nolint:gocritic // nothing else keeps before
			}
			latest[e.slot()] = now
		})
	}
	out := make([]Origin, 0, len(latest))
	visitEntries(whole, func(e entry, _ string, _ int) { out = append(out, *latest[e.slot()]) })
	return out
}

// originsOfSpecs returns the origins of the fields that MachineConfigs have outside of Ignition. Each item of a list
// has its own origin.
func originsOfSpecs(sources []poolv1.MachineConfig) (out []Origin) {
	for _, source := range sources {
		for _, argument := range source.Spec.KernelArguments {
			out = append(out, Origin{Kind: KindKernelArgument, Name: argument, MachineConfig: source.Name})
		}
	}
	for _, source := range sources {
		for _, extension := range source.Spec.Extensions {
			out = append(out, Origin{Kind: KindExtension, Name: extension, MachineConfig: source.Name})
		}
	}
	for _, field := range []struct {
		kind  Kind
		value func(poolv1.MachineConfigSpec) string
	}{
		{KindKernelType, func(spec poolv1.MachineConfigSpec) string { return spec.KernelType }},
		{KindOSImageURL, func(spec poolv1.MachineConfigSpec) string { return spec.OSImageURL }},
		{KindExtensionsImage, func(spec poolv1.MachineConfigSpec) string { return spec.BaseOSExtensionsContainerImage }},
		{KindFIPS, func(spec poolv1.MachineConfigSpec) string {
			if ptr.Deref(spec.FIPS, false) {
				return "true"
			}
			return ""
		}},
	} {
		origin := Origin{Kind: field.kind}
		for _, source := range sources {
			if value := field.value(source.Spec); value != "" {
				if origin.MachineConfig != "" {
					origin.Overrides = append(origin.Overrides, origin.MachineConfig)
				}
				origin.Name, origin.MachineConfig = value, source.Name
			}
		}
		if origin.MachineConfig != "" {
			out = append(out, origin)
		}
	}
	return out
}

// visitor is called for an entry with the path of its list in the document, and its index in the list.
type visitor func(e entry, list string, index int)

// visitEntries visits the entries of an Ignition configuration, in the order of the document. A unit with nothing but
// drop-ins has no entry of its own.
func visitEntries(c ignition.Config, visit visitor) {
	visitKind(visit, KindFile, "storage.files", c.Storage.Files, types.File.Key)
	visitKind(visit, KindDirectory, "storage.directories", c.Storage.Directories, types.Directory.Key)
	visitKind(visit, KindLink, "storage.links", c.Storage.Links, types.Link.Key)
	for i, unit := range c.Systemd.Units {
		if len(unit.Dropins) == 0 || unit.Contents != nil || unit.Enabled != nil || unit.Mask != nil {
			visit(entry{KindUnit, unit.Name}, "systemd.units", i)
		}
		visitKind(visit, KindDropin, fmt.Sprintf("systemd.units[%d].dropins", i), unit.Dropins,
			func(dropin types.Dropin) string { return unit.Name + ".d/" + dropin.Name })
	}
	visitKind(visit, KindUser, "passwd.users", c.Passwd.Users, types.PasswdUser.Key)
	visitKind(visit, KindGroup, "passwd.groups", c.Passwd.Groups, types.PasswdGroup.Key)
	visitKind(visit, KindDisk, "storage.disks", c.Storage.Disks, types.Disk.Key)
	visitKind(visit, KindRaid, "storage.raid", c.Storage.Raid, types.Raid.Key)
	visitKind(visit, KindLuks, "storage.luks", c.Storage.Luks, types.Luks.Key)
	visitKind(visit, KindFilesystem, "storage.filesystems", c.Storage.Filesystems, types.Filesystem.Key)
	visitKind(visit, KindKernelArgument, "kernelArguments.shouldExist", c.KernelArguments.ShouldExist, argumentText)
	visitKind(visit, KindRemovedKernelArgument, "kernelArguments.shouldNotExist", c.KernelArguments.ShouldNotExist, argumentText)
}

// visitKind visits the entries of one list of a configuration. key returns the key by which Ignition merges an item.
func visitKind[T any](visit visitor, kind Kind, list string, items []T, key func(T) string) {
	for i, item := range items {
		visit(entry{kind, key(item)}, list, i)
	}
}

func argumentText(argument types.KernelArgument) string { return string(argument) }
