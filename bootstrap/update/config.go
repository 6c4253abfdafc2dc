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
	// Restart is what the host restarts when it changes to this configuration, also if nothing else changes.
	Restart RestartKind
}

// RestartKind is what a host restarts although its configuration does not need it.
type RestartKind string

const (
	// RestartNothing means that the host restarts only what its configuration needs.
	RestartNothing RestartKind = ""
	// RestartKubelet restarts the kubelet.
	RestartKubelet RestartKind = "Kubelet"
	// RestartHost drains the Node and reboots the host.
	RestartHost RestartKind = "Reboot"
	// RestartKernel does the same, and not by a method that keeps the kernel.
	RestartKernel RestartKind = "RebootWithKernel"
)

// actions returns what the host does.
func (k RestartKind) actions() []Action {
	if k == RestartKubelet {
		return []Action{{Type: Restart, Unit: ignition.KubeletUnit}}
	}
	return []Action{{Type: Reboot}}
}
