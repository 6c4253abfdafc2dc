package update

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// OperatingSystem is the operating system of a host, as far as a rendered config determines it.
type OperatingSystem struct {
	// Image is the image of the operating system. If it is empty, it is the image that the host was installed with.
	Image string `json:"image,omitempty"`
	// ExtensionsImage is the image that extensions and other kernels are installed from.
	ExtensionsImage string `json:"extensionsImage,omitempty"`
	// KernelType is the kernel. It must not be empty.
	KernelType string `json:"kernelType"`
	// Extensions are installed in addition to the image.
	Extensions []string `json:"extensions,omitempty"`
}

// Kernels.
const (
	DefaultKernel  = "default"
	RealtimeKernel = "realtime"
	PagesKernel    = "64k-pages"
)

// HasDefaultKernel reports whether the kernel is that of the image.
func (o *OperatingSystem) HasDefaultKernel() bool {
	return o.KernelType == "" || o.KernelType == DefaultKernel
}

// without returns the operating system without an entry.
func (o OperatingSystem) without(entry Kind) OperatingSystem {
	switch entry {
	case KindOSImage:
		o.Image = ""
	case KindExtensions:
		o.Extensions = nil
	case KindKernelType:
		o.KernelType = DefaultKernel
	}
	return o
}

// imagePattern excludes options of programs, and what is no name of an image.
var imagePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$`)

// Obstacles returns the entries that no program can install, because they are no names of images, kernels or packages.
func (o *OperatingSystem) Obstacles() (obstacles []Obstacle) {
	refuse := func(kind Kind, why, remedy string) {
		obstacles = append(obstacles, Obstacle{Item{Kind: kind}, why, remedy})
	}
	for _, image := range []struct {
		kind Kind
		name string
	}{{KindOSImage, o.Image}, {KindExtensionsImage, o.ExtensionsImage}} {
		if image.name != "" && !imagePattern.MatchString(image.name) {
			refuse(image.kind, fmt.Sprintf("%q is not the name of an image", image.name), correct)
		}
	}
	if !o.HasDefaultKernel() && o.KernelType != RealtimeKernel && o.KernelType != PagesKernel {
		refuse(KindKernelType, fmt.Sprintf("%q is not known", o.KernelType), fmt.Sprintf("use %s, %s or %s", DefaultKernel, RealtimeKernel, PagesKernel))
	}
	for _, name := range o.Extensions {
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "/ \t\n") {
			refuse(KindExtensions, fmt.Sprintf("%q is not the name of a package", name), correct)
		}
	}
	return obstacles
}

const correct = "correct it in the MachineConfig"

// changesOS reports whether a host changes its operating system. Another extensions image alone changes nothing: it is
// used when extensions are installed.
func changesOS(before, after OperatingSystem) bool {
	return before.Image != after.Image || before.KernelType != after.KernelType || !slices.Equal(before.Extensions, after.Extensions)
}
