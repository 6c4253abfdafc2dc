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
