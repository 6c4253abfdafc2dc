package update

import (
	"slices"
	"strings"
)

// Capabilities are what a host can change beside files, units and users, and how it can reboot. They depend on the
// programs and the kernel of the host.
type Capabilities struct {
	// KernelArguments means that the host can change its kernel arguments.
	KernelArguments bool
	// OSImage means that the host can change to another image of its operating system.
	OSImage bool
	// Packages means that the host can install extensions and another kernel.
	Packages bool
	// LacksKexec and LacksSoftReboot mean that the host can't reboot by the method. Otherwise, it is tried.
	LacksKexec, LacksSoftReboot bool
}

// Programs that change a host. Of a list, one is enough, and the first one is the best.
var (
	kernelArgumentTools = Programs
	osImageTools        = []string{"bootc", "rpm-ostree"}
	packageTools        = []string{"rpm-ostree"}
)

// Programs are the names of all programs that CapabilitiesOf knows.
var Programs = []string{"rpm-ostree", "bootc", "grubby", "ignition-kargs-helper"}

// AllCapabilities are those of a host with all programs.
var AllCapabilities = CapabilitiesOf(Programs...)

// CapabilitiesOf returns the capabilities of a host with these programs. It ignores the names of other programs.
func CapabilitiesOf(programs ...string) Capabilities {
	hasOneOf := func(tools []string) bool {
		return slices.ContainsFunc(tools, func(tool string) bool { return slices.Contains(programs, tool) })
	}
	return Capabilities{KernelArguments: hasOneOf(kernelArgumentTools), OSImage: hasOneOf(osImageTools), Packages: hasOneOf(packageTools)}
}

// Names of kinds of changes, in reports of agents and in the status of PoolbootConfigs. So are those of reboot methods.
const (
	changeKernelArguments = "KernelArguments"
	changeOSImage         = "OSImage"
	changeExtensions      = "Extensions"
)

// Unsupported returns the kinds of changes for which the host has no program, and the reboot methods that it lacks.
func (c Capabilities) Unsupported() (changes []string) {
	for _, kind := range []struct {
		name string
		can  bool
	}{{changeKernelArguments, c.KernelArguments}, {changeOSImage, c.OSImage}, {changeExtensions, c.Packages}, {string(Kexec), !c.LacksKexec}, {string(SoftReboot), !c.LacksSoftReboot}} {
		if !kind.can {
			changes = append(changes, kind.name)
		}
	}
	return changes
}

// CapabilitiesWithout returns those of a host that supports all kinds of changes and reboot methods but these. It
// ignores other words.
func CapabilitiesWithout(changes ...string) Capabilities {
	supports := func(change string) bool { return !slices.Contains(changes, change) }
	return Capabilities{KernelArguments: supports(changeKernelArguments), OSImage: supports(changeOSImage), Packages: supports(changeExtensions),
		LacksKexec: !supports(string(Kexec)), LacksSoftReboot: !supports(string(SoftReboot))}
}

// missingTools returns the obstacles of changes for which the host has no program.
func missingTools(changes []Difference, can Capabilities) (obstacles []Obstacle) {
	for _, change := range changes {
		hasTool, tools := true, []string(nil)
		switch change.Kind {
		case KindKernelArguments:
			hasTool, tools = can.KernelArguments, kernelArgumentTools
		case KindOSImage:
			hasTool, tools = can.OSImage, osImageTools
		case KindExtensions, KindKernelType:
			hasTool, tools = can.Packages, packageTools
		}
		if !hasTool {
			remedy := "install the host again with an image that has " + strings.Join(tools, " or ")
			if change.Kind == KindKernelArguments { // Ignition sets them
				remedy = "use an image with " + strings.Join(tools, " or ") + ", or replace the Machine"
			}
			obstacles = append(obstacles, Obstacle{Item: change.Item, Why: "the host has no program that can change it",
				Remedy: remedy})
		}
	}
	return obstacles
}
