package update

import (
	"slices"
	"strings"

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
	return d.IsRepairable() && !slices.Contains([]DriftKind{DriftMissingArgument, DriftAdditionalArgument, DriftOS}, d.Kind)
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
