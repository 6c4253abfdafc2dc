package ignition

import (
	"maps"
	"path"
	"regexp"
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
	// KubeconfigPath is the kubelet's own kubeconfig. The kubelet writes it before it asks for its certificate, so it
	// says nothing about whether the host has joined.
	KubeconfigPath = "/etc/kubernetes/kubelet.conf"
	// ClusterCAPath is the certificate authority of the cluster.
	ClusterCAPath = "/etc/kubernetes/pki/ca.crt"
	// KubeletPKIDirectory is where the kubelet keeps its certificates.
	KubeletPKIDirectory = "/var/lib/kubelet/pki"
	// KubeletConfigPath is the kubelet's configuration.
	KubeletConfigPath = "/etc/kubernetes/kubelet.yaml"
	// KubeletConfigDirectory is where users put drop-ins of the kubelet's configuration.
	KubeletConfigDirectory = "/etc/kubernetes/kubelet.conf.d"
	// WorkerKubeletPath and PoolKubeletPath are the drop-ins with what the worker pool and a custom pool say about
	// their kubelets. Of all drop-ins in KubeletConfigDirectory, only those that start with 99 have more weight: they
	// are for what is one host's own.
	WorkerKubeletPath = KubeletConfigDirectory + "/97-poolboot-worker.conf"
	PoolKubeletPath   = KubeletConfigDirectory + "/98-poolboot-pool.conf"
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

	// OwnDropin is the name of Poolboot's drop-in of KubeletUnit.
	OwnDropin = "10-poolboot.conf"
	// KubeadmFlagsPath is where kubeadm writes the kubelet's flags, in KubeadmArgsVariable.
	KubeadmFlagsPath    = "/var/lib/kubelet/kubeadm-flags.env"
	KubeadmArgsVariable = "KUBELET_KUBEADM_ARGS"

	// kubeadmKubeletConfigPath is where kubeadm writes the kubelet's configuration.
	kubeadmKubeletConfigPath = "/var/lib/kubelet/config.yaml"
	// kubeadmDropin is the drop-in of KubeletUnit by which images hand kubeadm's flags to the kubelet. One of the same
	// name in /etc takes its place.
	kubeadmDropin = "10-kubeadm.conf"
)

// cures say, for every reserved file, what to do instead.
var cures = map[string]string{
	BootstrapKubeconfigPath: cureLeaveOut,
	KubeconfigPath:          cureLeaveOut,
	ClusterCAPath:           cureLeaveOut,
	KubeadmJoinPath:         cureLeaveOut,
	SentinelPath:            cureLeaveOut,
	KubeadmFlagsPath:        cureLeaveOut,

	kubeadmKubeletConfigPath: "put a drop-in into " + KubeletConfigDirectory,
	KubeletConfigPath:        "put a drop-in into " + KubeletConfigDirectory,
	WorkerKubeletPath:        cureKubelet,
	PoolKubeletPath:          cureKubelet,
	HostnamePath:             "the host is named as its Node: see nodeNameSource of the PoolbootConfig",
}

const (
	cureLeaveOut = "leave it out: it is written when the host joins"
	cureKubelet  = "set spec.kubeletConfiguration of the MachineConfigPool, or give your drop-in another name"
)

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

// leadsToReserved says whether anything reserved, the directory of kubelet drop-ins or one of units is below the path,
// or is it: a file or a link there would take its place.
func leadsToReserved(name string) bool {
	below := func(reserved string) bool { return isBelow(reserved, name) }
	for reserved := range cures {
		if below(reserved) {
			return true
		}
	}
	return name == KubeletConfigDirectory || slices.ContainsFunc(reservedDirectories, below) ||
		slices.Contains(unitDirectories, name) || slices.ContainsFunc(unitDirectories, below)
}

// hidesReserved says whether a file system that is mounted at a path would hide what Poolboot writes below it. One of
// /var may be: whoever moves it has a mount unit for it.
func hidesReserved(name string) bool {
	inSystem := slices.ContainsFunc([]string{"/etc", "/run", "/usr/lib"}, func(directory string) bool {
		return name == directory || isBelow(name, directory)
	})
	return isKept(name) || name == "/usr" || inSystem && leadsToReserved(name) ||
		slices.ContainsFunc(unitDirectories, func(directory string) bool { return isBelow(name, directory) })
}

// isOutside says whether a path is another way to files of the root, which the kernel or an image based on OSTree has.
func isOutside(name string) bool {
	return slices.ContainsFunc([]string{"/proc", "/sys", "/dev/fd", "/sysroot", "/ostree"}, func(directory string) bool {
		return name == directory || isBelow(name, directory)
	})
}

// keptPaths are those that Poolboot, the kubelet or systemd reads for what is Poolboot's, each by one example for what
// is in a directory.
var keptPaths = func() map[string]bool {
	kept := map[string]bool{KubeletConfigDirectory + "/a": true}
	for name := range cures {
		kept[name] = true
	}
	for _, directory := range slices.Concat(reservedDirectories, unitDirectories) {
		kept[directory+"/a"] = true
	}
	return kept
}()

// ownUnits are Poolboot's units on hosts.
var ownUnits = []string{OwnUnitPrefix + "check.service", OwnUnitPrefix + "join.service", OwnUnitPrefix + "joined.path", OwnUnitPrefix + "joined.service"}

// unitDirectories are where systemd looks for units of services, see systemd.unit(5).
var unitDirectories = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
	"/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached",
	"/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/run/systemd/generator.late",
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
	directory = strings.TrimSuffix(directory, "/")
	return len(name) > len(directory)+1 && name[len(directory)] == '/' && strings.HasPrefix(name, directory)
}

// aliases are the links that the images of Ignition's distributions have: the same place by two paths.
var aliases = [][2]string{{"/var/run", "/run"}, {"/lib", "/usr/lib"}, {"/var/usrlocal", "/usr/local"}}

// extensions matches what the directory of a system extension lays over the root.
var extensions = regexp.MustCompile(`^/(?:etc|run|var/lib|usr/lib|usr/local/lib)/extensions(?:\.mutable)?/[^/]+(/.*)$`)

// cleaned is a path without detours: over the links of images, and where a system extension would lay it.
func cleaned(name string) string {
	name = path.Clean(name)
	if strings.Contains(name, "/extensions") {
		if match := extensions.FindStringSubmatch(name); match != nil {
			name = match[1]
		}
	}
	for _, alias := range aliases {
		if name == alias[0] || isBelow(name, alias[0]) {
			return alias[1] + strings.TrimPrefix(name, alias[0])
		}
	}
	return name
}

// Allowed names what Guard lets pass where it refuses all else, for the documentation: settings in drop-ins of the
// kubelet's unit and of every service, and kernel arguments for systemd.
func Allowed() [3][]string { return [3][]string{allowedDirectives, allowedForEvery, allowedArguments} }

// Reserved names what Guard and GuardArguments keep from users, for the documentation: paths (a directory ends in a
// slash), units, drop-ins, the kubelet's flags and settings, variables, commands, kernel arguments.
func Reserved() []string {
	all := slices.Collect(maps.Keys(cures))
	for _, directory := range reservedDirectories {
		all = append(all, directory+"/")
	}
	for _, directory := range generatorDirectories {
		all = append(all, directory+"/")
	}
	all = append(all, KubeletUnit, OwnUnitPrefix+"*", KubeletUnit+".d/"+kubeadmDropin, KubeletUnit+".d/"+OwnDropin)
	for _, flag := range identityFlagNames {
		all = append(all, "--"+flag)
	}
	all = append(all, identitySettings...)
	all = append(all, reservedVariables...)
	for _, reserved := range reservedArguments {
		all = append(all, reserved.pattern)
	}
	all = append(all, targetWords...)
	slices.Sort(all)
	return all
}
