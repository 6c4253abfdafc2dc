package ignition

import (
	"path"
	"slices"
	"strings"
)

// Places on a host that are Poolboot's own. The machine's overlay writes them; Guard keeps them free of anything else.
const (
	// OwnDirectory holds what Poolboot leaves on a host for others to read.
	OwnDirectory = "/etc/poolboot"
	// KubeletEnvPath is the environment file with the kubelet's flags that are the machine's own.
	KubeletEnvPath = OwnDirectory + "/kubelet.env"
	// MachineConfigPath tells the operating system's agent what of the rendered config Ignition can't do.
	MachineConfigPath = OwnDirectory + "/machineconfig.json"

	// BootstrapKubeconfigPath is the kubeconfig with the join credential.
	BootstrapKubeconfigPath = "/etc/kubernetes/bootstrap-kubelet.conf"
	// KubeconfigPath is the kubelet's own kubeconfig. The kubelet writes it before it asks for its certificate, so it says
	// nothing about whether the host has joined.
	KubeconfigPath = "/etc/kubernetes/kubelet.conf"
	// ClusterCAPath is the certificate authority of the cluster.
	ClusterCAPath = "/etc/kubernetes/pki/ca.crt"
	// KubeletPKIDirectory is where the kubelet keeps its certificates.
	KubeletPKIDirectory = "/var/lib/kubelet/pki"
	// KubeletConfigPath is the kubelet's configuration.
	KubeletConfigPath = "/etc/kubernetes/kubelet.yaml"
	// KubeletConfigDirectory is where users put drop-ins of the kubelet's configuration.
	KubeletConfigDirectory = "/etc/kubernetes/kubelet.conf.d"
	// KubeadmJoinPath is kubeadm's JoinConfiguration.
	KubeadmJoinPath = "/etc/kubernetes/poolboot-join.yaml"
	// HostnamePath is the host's name, which must stay that of its Node.
	HostnamePath = "/etc/hostname"
	// SentinelPath is the file by which Cluster API knows that a host has joined.
	SentinelPath = "/run/cluster-api/bootstrap-success.complete"

	// KubeletUnit is the kubelet's systemd unit.
	KubeletUnit = "kubelet.service"
	// OwnUnitPrefix starts the names of Poolboot's own systemd units.
	OwnUnitPrefix = "poolboot-"
	// KubeletArgsVariable is the variable in KubeletEnvPath that the kubelet's unit takes its flags from.
	KubeletArgsVariable = "POOLBOOT_KUBELET_ARGS"
)

// cures say, for every reserved file, what to do instead.
var cures = map[string]string{
	BootstrapKubeconfigPath: cureLeaveOut,
	KubeconfigPath:          cureLeaveOut,
	ClusterCAPath:           cureLeaveOut,
	KubeadmJoinPath:         cureLeaveOut,
	SentinelPath:            cureLeaveOut,
	KubeletConfigPath:       "put a drop-in into " + KubeletConfigDirectory,
	HostnamePath:            "the host is named as its Node: see nodeName of the PoolbootConfig",
}

const cureLeaveOut = "leave it out: it is written when the host joins"

// reservedDirectories are reserved with everything below them.
var reservedDirectories = []string{OwnDirectory, KubeletPKIDirectory}

// cureFor returns what to do instead when a path is reserved, and "" when it is free.
func cureFor(name string) string {
	for _, directory := range reservedDirectories {
		if name == directory || isBelow(name, directory) {
			return cureLeaveOut
		}
	}
	return cures[name]
}

// leadsToReserved says whether anything reserved, or the directory of kubelet drop-ins, is below the path: a file or a link
// there would take its place.
func leadsToReserved(name string) bool {
	below := func(reserved string) bool { return isBelow(reserved, name) }
	for reserved := range cures {
		if below(reserved) {
			return true
		}
	}
	return name == KubeletConfigDirectory || slices.ContainsFunc(reservedDirectories, below)
}

// unitDirectories are where systemd looks for units that administrators and packages bring.
var unitDirectories = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// unitAt returns the unit that a path belongs to, and the drop-in if it is one. A path that is neither has no unit.
func unitAt(name string) (unit, dropin string) {
	directory, base := path.Split(name)
	directory = path.Clean(directory)
	if slices.Contains(unitDirectories, directory) {
		return base, ""
	}
	parent, dropins := path.Split(directory)
	if unit, isDropins := strings.CutSuffix(dropins, ".d"); isDropins && slices.Contains(unitDirectories, path.Clean(parent)) {
		return unit, base
	}
	return "", ""
}

// isBelow says whether name is inside directory.
func isBelow(name, directory string) bool {
	return strings.HasPrefix(name, strings.TrimSuffix(directory, "/")+"/") && name != directory
}
