package update

import "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"

// Config is the configuration of a host.
type Config struct {
	// Ignition has files, directories, links, units, users and groups.
	Ignition ignition.Config
	// KernelArguments are as in the rendered config: an item can have several arguments.
	KernelArguments []string
	// FIPS is true in FIPS mode.
	FIPS bool
	// OS is what the host runs.
	OS OperatingSystem
}

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
