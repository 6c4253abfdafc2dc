package update

import (
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Drift is something that differs on a host from its configuration: a path, a kernel argument, or an entry of the
// operating system.
type Drift struct {
	Name string    `json:"name"`
	Kind DriftKind `json:"kind"`
}

// DriftKind is how something differs.
type DriftKind string

// Kinds of drift.
const (
	DriftMissing    DriftKind = "Missing"
	DriftType       DriftKind = "Type"
	DriftContent    DriftKind = "Content"
	DriftMode       DriftKind = "Mode"
	DriftOwner      DriftKind = "Owner"
	DriftLinkTarget DriftKind = "LinkTarget"
	// DriftCapabilities is a file that gives capabilities to who runs it: a configuration never does.
	DriftCapabilities DriftKind = "Capabilities"
	// DriftAdditionalDropIn is a drop-in of a configured unit that the configuration does not contain.
	DriftAdditionalDropIn DriftKind = "AdditionalDropIn"
	// DriftUnreadable is a path of which it is not known whether it differs.
	DriftUnreadable DriftKind = "Unreadable"
	// DriftNotRestored is what the undo of an update could not restore.
	DriftNotRestored DriftKind = "NotRestored"
	// DriftMissingArgument is a kernel argument that the running kernel does not have, and DriftAdditionalArgument one
	// that it still has although it was removed with an earlier configuration.
	DriftMissingArgument    DriftKind = "MissingKernelArgument"
	DriftAdditionalArgument DriftKind = "AdditionalKernelArgument"
	// DriftEnablement is a unit that is enabled and should be disabled, or the other way around.
	DriftEnablement DriftKind = "Enablement"
	// DriftMasked is a unit that is masked, and not by the configuration.
	DriftMasked DriftKind = "Masked"
	// DriftOverridden is a file that takes the place of a unit's file in the configuration.
	DriftOverridden DriftKind = "Overridden"
	// DriftMissingUser and DriftMissingGroup are accounts that the host does not have.
	DriftMissingUser  DriftKind = "MissingUser"
	DriftMissingGroup DriftKind = "MissingGroup"
	// DriftOS is an entry, such as osImageURL, that the running operating system does not have.
	DriftOS DriftKind = "OperatingSystem"
)

func (d Drift) String() string { return d.Name + ": " + string(d.Kind) }

// ParseDrift returns the drift that a report of a host lists. Such a list can be shortened.
func ParseDrift(list string) (drift []Drift) {
	for entry := range strings.SplitSeq(list, "; ") {
		if name, kind, ok := strings.Cut(entry, ": "); ok {
			drift = append(drift, Drift{name, DriftKind(kind)})
		}
	}
	return drift
}

// IsRepairable reports whether it is something that Poolboot wrote, and that it can write again.
func (d Drift) IsRepairable() bool {
	return !slices.Contains([]DriftKind{DriftAdditionalDropIn, DriftUnreadable, DriftNotRestored, DriftMasked, DriftOverridden}, d.Kind)
}

// IsPath reports whether it is a path that Poolboot can write again.
func (d Drift) IsPath() bool {
	return d.IsRepairable() && !slices.Contains([]DriftKind{DriftMissingArgument, DriftAdditionalArgument, DriftMissingUser, DriftMissingGroup, DriftOS}, d.Kind)
}

// pathsOf returns the paths that differ and can be written again.
func pathsOf(drift []Drift) (paths []string) {
	for _, d := range drift {
		if d.IsPath() {
			paths = append(paths, d.Name)
		}
	}
	return paths
}

// AsFound returns the configuration with the operating system and the kernel arguments that the host has instead.
func (c Config) AsFound(drift []Drift) Config {
	var missing, additional []string
	for _, d := range drift {
		switch d.Kind {
		case DriftOS:
			c.OS = c.OS.without(Kind(d.Name))
		case DriftMissingArgument:
			missing = append(missing, d.Name)
		case DriftAdditionalArgument:
			additional = append(additional, d.Name)
		}
	}
	if len(missing)+len(additional) > 0 {
		has := slices.DeleteFunc(ignition.SplitArguments(c.KernelArguments), func(argument string) bool { return slices.Contains(missing, argument) })
		c.KernelArguments = slices.Concat(has, additional)
	}
	return c
}

// Found returns what a host that Poolboot did not boot has of a configuration, if it differs like this. Disks are not
// compared, so it has none of them. Of a user that exists, only the name is known. New adds the kernel arguments and
// the operating system that differ.
func (c Config) Found(drift []Drift) Config {
	differs := map[string]bool{}
	for _, d := range drift {
		differs[d.Name] = true
	}
	has := c
	has.FIPS, has.Ignition.Passwd, has.Ignition.Systemd.Units = false, types.Passwd{}, nil
	has.Ignition.Storage = types.Storage{
		Files:       withoutDiffering(c.Ignition.Storage.Files, differs),
		Directories: withoutDiffering(c.Ignition.Storage.Directories, differs),
		Links:       withoutDiffering(c.Ignition.Storage.Links, differs),
	}
	for _, unit := range c.Ignition.Systemd.Units {
		if differs[path.Join(hosttree.UnitDirectory, unit.Name)] {
			continue
		}
		unit.Dropins = slices.DeleteFunc(slices.Clone(unit.Dropins), func(dropIn types.Dropin) bool {
			return differs[path.Join(hosttree.UnitDirectory, unit.Name+".d", dropIn.Name)]
		})
		has.Ignition.Systemd.Units = append(has.Ignition.Systemd.Units, unit)
	}
	for _, user := range c.Ignition.Passwd.Users {
		if !slices.Contains(drift, Drift{Name: user.Name, Kind: DriftMissingUser}) {
			has.Ignition.Passwd.Users = append(has.Ignition.Passwd.Users, types.PasswdUser{Name: user.Name})
		}
	}
	for _, group := range c.Ignition.Passwd.Groups {
		if !slices.Contains(drift, Drift{Name: group.Name, Kind: DriftMissingGroup}) {
			has.Ignition.Passwd.Groups = append(has.Ignition.Passwd.Groups, group)
		}
	}
	return has
}

// withoutDiffering returns the entries whose paths do not differ.
func withoutDiffering[T keyed](entries []T, differs map[string]bool) []T {
	return slices.DeleteFunc(slices.Clone(entries), func(entry T) bool { return differs[path.Clean(entry.Key())] })
}
