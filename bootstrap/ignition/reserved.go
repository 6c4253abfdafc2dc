package ignition

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Paths and names on a host that are reserved for Poolboot. The machine's overlay writes them, and Guard refuses them
// in users' configurations.
const (
	// OwnDirectory contains files that Poolboot writes for other programs on the host.
	OwnDirectory = "/etc/poolboot"
	// KubeletEnvPath is the environment file with the kubelet's flags for this machine.
	KubeletEnvPath = OwnDirectory + "/kubelet.env"
	// MachineConfigPath has the fields of the rendered config that Ignition can't express, for the agent of the
	// operating system.
	MachineConfigPath = OwnDirectory + "/machineconfig.json"

	// CheckScriptPath is the script that verifies, before a host joins and after an update, that what Poolboot wrote is
	// unchanged.
	CheckScriptPath = OwnDirectory + "/check.sh"
	// ReportHeaderPath has the header with the token of the host, with which it reports that it does not join.
	ReportHeaderPath = OwnDirectory + "/report.header"
	// StateDirectory contains the host's agent and its state.
	StateDirectory = "/var/lib/poolboot"

	// BootstrapKubeconfigPath is the kubeconfig with the join credential.
	BootstrapKubeconfigPath = "/etc/kubernetes/bootstrap-kubelet.conf"
	// KubeconfigPath is the kubelet's own kubeconfig. The kubelet writes it before it requests its certificate, so its
	// existence does not mean that the host has joined.
	KubeconfigPath = "/etc/kubernetes/kubelet.conf"
	// ClusterCAPath is the certificate authority of the cluster.
	ClusterCAPath = "/etc/kubernetes/pki/ca.crt"
	// KubeletPKIDirectory is the directory of the kubelet's certificates.
	KubeletPKIDirectory = "/var/lib/kubelet/pki"
	// KubeletConfigPath is the kubelet's configuration.
	KubeletConfigPath = "/etc/kubernetes/kubelet.yaml"
	// KubeletConfigDirectory is the directory for users' drop-ins of the kubelet's configuration.
	KubeletConfigDirectory = "/etc/kubernetes/kubelet.conf.d"
	// WorkerKubeletPath and PoolKubeletPath are the drop-ins with the kubeletConfigurations of the worker pool and of a
	// custom pool. Only drop-ins in KubeletConfigDirectory that start with 99 override them: these are for settings of
	// a single host.
	WorkerKubeletPath = KubeletConfigDirectory + "/97-poolboot-worker.conf"
	PoolKubeletPath   = KubeletConfigDirectory + "/98-poolboot-pool.conf"
	// WorkerReservedPath and PoolReservedPath are links to ReservedOutputPath, for autoSizingReserved of the worker
	// pool and of a custom pool. Each is before the kubelet configuration of the same pool, which overrides it.
	WorkerReservedPath = KubeletConfigDirectory + "/97-poolboot-worker-reserved.conf"
	PoolReservedPath   = KubeletConfigDirectory + "/98-poolboot-pool-reserved.conf"
	// ReservedScriptPath is the script that computes what the kubelet reserves for the system, and ReservedOutputPath
	// is the drop-in that it writes whenever the kubelet starts.
	ReservedScriptPath = OwnDirectory + "/system-reserved.sh"
	ReservedOutputPath = "/run/poolboot/system-reserved.conf"
	// KubeadmJoinPath is kubeadm's JoinConfiguration.
	KubeadmJoinPath = "/etc/kubernetes/poolboot-join.yaml"
	// HostnamePath is the host's name, which must be the name of its Node.
	HostnamePath = "/etc/hostname"
	// SentinelPath is the file that signals, by the Cluster API contract, that a host has joined.
	SentinelPath = "/run/cluster-api/bootstrap-success.complete"

	// KubeletUnit is the kubelet's systemd unit.
	KubeletUnit = "kubelet.service"
	// DependenciesTarget is the target that starts before the kubelet, as on OpenShift's hosts. Units of users start
	// before the kubelet with WantedBy= or RequiredBy= of this target.
	DependenciesTarget = "kubelet-dependencies.target"
	// OwnUnitPrefix is the prefix of the names of Poolboot's systemd units.
	OwnUnitPrefix = "poolboot-"
	// AgentUnit runs the host's agent.
	AgentUnit = OwnUnitPrefix + "agent.service"
	// RegisterUnit pre-registers the Node before the kubelet starts, at every boot.
	RegisterUnit = OwnUnitPrefix + "register.service"
	// InstallAgentUnit downloads the agent of a host that boots without the config server.
	InstallAgentUnit = OwnUnitPrefix + "install-agent.service"
	// CheckpointsUnit removes the checkpoints of CPUs and memory, and empty files, before the kubelet first starts in a
	// boot, or after the unit was stopped. To stop the unit stops the kubelet first.
	CheckpointsUnit = OwnUnitPrefix + "checkpoints.service"
	// KubeletArgsVariable is the variable in KubeletEnvPath that the kubelet's unit takes its flags from.
	KubeletArgsVariable = "POOLBOOT_KUBELET_ARGS"
	// KubeletCommandVariable is the variable with the kubelet's path and its flags for joining, which WrapperDropin
	// uses.
	KubeletCommandVariable = "POOLBOOT_KUBELET_COMMAND"

	// OwnDropin is the name of Poolboot's drop-in for KubeletUnit.
	OwnDropin = "10-poolboot.conf"
	// WrapperDropin is the name of the drop-in for KubeletUnit with the kubelet wrapper of a pool.
	WrapperDropin = "20-poolboot-wrapper.conf"
	// ReservedDropin is the name of the drop-in for KubeletUnit that runs the script at ReservedScriptPath.
	ReservedDropin = "15-poolboot-reserved.conf"
	// WrappedKubelet is the kubelet's command in WrapperDropin. For both joins: variables that a host does not have
	// expand to nothing.
	WrappedKubelet = "$" + KubeletCommandVariable + " $" + KubeletArgsVariable +
		" $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $" + KubeadmArgsVariable + " $KUBELET_EXTRA_ARGS"
	// KubeadmFlagsPath is where kubeadm writes the kubelet's flags, in KubeadmArgsVariable.
	KubeadmFlagsPath    = "/var/lib/kubelet/kubeadm-flags.env"
	KubeadmArgsVariable = "KUBELET_KUBEADM_ARGS"

	// KubeadmKubeletConfigPath is where kubeadm writes the kubelet's configuration.
	KubeadmKubeletConfigPath = "/var/lib/kubelet/config.yaml"
	// kubeadmDropin is the drop-in for KubeletUnit by which images pass kubeadm's flags to the kubelet. A drop-in with
	// the same name in /etc replaces it.
	kubeadmDropin = "10-kubeadm.conf"
)

// remedies has, for every reserved file, what to do instead.
var remedies = map[string]string{
	BootstrapKubeconfigPath: remedyLeaveOut,
	KubeconfigPath:          remedyLeaveOut,
	ClusterCAPath:           remedyLeaveOut,
	KubeadmJoinPath:         remedyLeaveOut,
	SentinelPath:            remedyLeaveOut,
	KubeadmFlagsPath:        remedyLeaveOut,

	KubeadmKubeletConfigPath: "put a drop-in into " + KubeletConfigDirectory,
	KubeletConfigPath:        "put a drop-in into " + KubeletConfigDirectory,
	WorkerKubeletPath:        remedyKubelet,
	PoolKubeletPath:          remedyKubelet,
	WorkerReservedPath:       remedyReserved,
	PoolReservedPath:         remedyReserved,
	HostnamePath:             "the host's name is that of its Node: set nodeNameSource of the PoolbootConfig",
}

const (
	remedyLeaveOut = "leave it out: it is written when the host joins"
	remedyReserved = "set spec.kubelet.autoSizingReserved of the MachineConfigPool, or give your drop-in another name"
	remedyKubelet  = "set spec.kubelet.configuration of the MachineConfigPool, or give your drop-in another name"

	remedyControlPlane = "kubeadm and etcd have it, and no update may touch it: leave it out, and use kubeadmConfigSpec of the KubeadmControlPlane"
)

// controlPlanePaths are the files, and the directories including everything below them, that kubeadm and etcd have on
// hosts of a control plane: certificates, credentials, manifests and data.
var controlPlanePaths = []string{
	"/etc/kubernetes/pki", staticPods, "/var/lib/etcd", KubeletPKIDirectory, KubeconfigPath,
	"/etc/kubernetes/admin.conf", "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf",
}

// IsOfControlPlane reports whether kubeadm or etcd has a path on hosts of a control plane.
func IsOfControlPlane(name string) bool { return isIn(cleanPath(name), controlPlanePaths...) }

// IsOwnFile reports whether the absolute path of an entry is in OwnDirectory.
func IsOwnFile(path string) bool { return strings.HasPrefix(path, OwnDirectory+"/") }

// reservedDirectories are reserved including everything below them.
var reservedDirectories = []string{OwnDirectory, KubeletPKIDirectory, StateDirectory}

// reservedPaths are all reserved files and directories, and the directories of units.
var reservedPaths = slices.Concat(slices.Collect(maps.Keys(remedies)), reservedDirectories, UnitDirectories)

// reservation returns for whom a path is reserved, and what to do instead. Both are "" if it is not reserved.
func (s Scope) reservation(name string) (whom, remedy string) {
	switch {
	case s.ControlPlane && IsOfControlPlane(name):
		return "the control plane", remedyControlPlane
	case isIn(name, reservedDirectories...):
		return "Poolboot", remedyLeaveOut
	case remedies[name] != "":
		return "Poolboot", remedies[name]
	}
	return "", ""
}

// containsReserved reports whether a path is, or contains, a reserved path, the directory of kubelet drop-ins or a unit
// directory. A file or a link there would replace it.
func containsReserved(name string) bool {
	return name == KubeletConfigDirectory || slices.Contains(UnitDirectories, name) ||
		slices.ContainsFunc(reservedPaths, func(reserved string) bool { return isBelow(reserved, name) })
}

// OwnUnits are Poolboot's units on hosts.
var OwnUnits = []string{
	OwnUnitPrefix + "check.service", OwnUnitPrefix + "join.service", OwnUnitPrefix + "joined.path", OwnUnitPrefix + "joined.service",
	AgentUnit, RegisterUnit, InstallAgentUnit, CheckpointsUnit,
}

// UnitDirectories are the directories of system units, the one that takes precedence first, see systemd.unit(5).
var UnitDirectories = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
	"/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached",
	"/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/run/systemd/generator.late",
}

// unitAt returns the unit to which a path belongs, and the name of the drop-in if the path is one. Both are empty for
// other paths.
func unitAt(name string) (unit, dropin string) {
	directory, base := path.Split(name)
	directory = path.Clean(directory)
	if slices.Contains(UnitDirectories, directory) {
		return base, ""
	}
	parent, dropins := path.Split(directory)
	if unit, isDropins := strings.CutSuffix(dropins, ".d"); isDropins && slices.Contains(UnitDirectories, path.Clean(parent)) {
		return unit, base
	}
	return "", ""
}

// isBelow reports whether name is inside directory.
func isBelow(name, directory string) bool {
	directory = strings.TrimSuffix(directory, "/")
	return len(name) > len(directory)+1 && name[len(directory)] == '/' && strings.HasPrefix(name, directory)
}

// isIn reports whether name is one of some directories, or inside one of them.
func isIn(name string, directories ...string) bool {
	return slices.ContainsFunc(directories, func(directory string) bool { return name == directory || isBelow(name, directory) })
}

// aliases are links in the images of the distributions that use Ignition: two paths of the same file.
var aliases = [][2]string{{"/var/run", "/run"}, {"/lib", "/usr/lib"}, {"/var/usrlocal", "/usr/local"}}

// cleanPath returns a path with the links of images resolved.
func cleanPath(name string) string {
	name = path.Clean(name)
	for _, alias := range aliases {
		if isIn(name, alias[0]) {
			return alias[1] + strings.TrimPrefix(name, alias[0])
		}
	}
	return name
}
