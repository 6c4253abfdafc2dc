package convert

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// withoutEffect has names of files and units that only programs of OpenShift's images read, and what to do here.
var withoutEffect = []struct {
	name    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^kubens\.service$`), "only OpenShift's images have this unit and start the kubelet and CRI-O in its namespace: " +
		"set spec.kubelet.wrapper of the pool, and write the unit in a MachineConfig"},
	{regexp.MustCompile(`^nodeip-configuration\.service$`), "only OpenShift's images have this unit: the kubelet selects its address by the default route, " +
		"and --node-ip in KUBELET_EXTRA_ARGS of the host's image names another"},
	{regexp.MustCompile(`^/etc/kubernetes/openshift-workload-pinning$`), "only OpenShift's kubelet reads this file: set reservedSystemCPUs and cpuManagerPolicy in spec.kubelet.configuration, " +
		"and CPUAffinity in a drop-in of the units to pin"},
	{regexp.MustCompile(`^/etc/crio/crio\.conf\.d/.*workload.*(pinning|partitioning)`), "CRI-O pins workloads only with the annotations that OpenShift's kubelet sets: set reservedSystemCPUs in spec.kubelet.configuration"},
	{regexp.MustCompile(`^/etc/default/nodeip-configuration$`), "only OpenShift's nodeip-configuration.service reads this file: configure the host's addresses in its network configuration"},
	{regexp.MustCompile(`^/etc/(machine-config-daemon|mco|machine-config-server)(/|$)`), "only OpenShift's Machine Config Operator reads this file: leave it out"},
	{regexp.MustCompile(`^/etc/kubernetes/static-pod-resources(/|$)`), "only OpenShift's operators of the control plane use this directory: leave it out"},
}

// withoutCRIO has names of files, file systems and units that have no effect on hosts with containerd, and what to do
// there.
var withoutCRIO = []struct {
	name    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^(/etc/crio/.*|crio\.service)$`),
		"hosts with containerd do not have CRI-O: write the setting for containerd, in /etc/containerd/conf.d/*.toml or in a drop-in of containerd.service"},
	{regexp.MustCompile(`^/etc/containers/registries\.conf(\.d/.*)?$`),
		"containerd does not read this file: write " + containerdHosts + "/HOST/hosts.toml, or convert an ImageDigestMirrorSet or ImageTagMirrorSet"},
	{regexp.MustCompile(`^/etc/containers/(policy\.json|registries\.d/.*)$`), "containerd verifies no signatures: " + input.VerifyElsewhere},
	{regexp.MustCompile(`^(/var/lib/containers(/.*)?|var-lib-containers(-.*)?\.(mount|automount))$`),
		"containerd stores images and containers in /var/lib/containerd: use this path, and var-lib-containerd.mount for a unit"},
}

// openShiftVariables are variables that only the kubelet's unit or the kubelet of OpenShift reads, and what to do here.
var openShiftVariables = map[string]string{
	"KUBELET_LOG_LEVEL":                            "set logging.verbosity in spec.kubelet.configuration",
	"OPENSHIFT_MAX_HOUSEKEEPING_INTERVAL_DURATION": "other kubelets do not have this setting: leave it out",
	"OPENSHIFT_EVICTION_MONITORING_PERIOD_DURATION": "other kubelets do not have this setting: set evictionPressureTransitionPeriod " +
		"in spec.kubelet.configuration, or leave it out",
}

// inPool matches the fields of a pool in what to do instead.
var inPool = regexp.MustCompile(`(spec[.]kubelet[.](?:configuration|wrapper))( of the pool)?`)

// warnWithoutEffect names the entries of a MachineConfig that have no effect on hosts without OpenShift's programs.
// What to do instead is for the pools that select it, and for the container runtime with a name.
func warnWithoutEffect(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool, containerRuntime string, remark func(string, ...any)) {
	var selecting []string
	for _, p := range pools {
		if pool.Selects(p, config.Labels) {
			selecting = append(selecting, p.Name)
		}
	}
	of := "the pools that will select this MachineConfig"
	switch {
	case len(selecting) == 1:
		of = "the pool " + selecting[0]
	case len(selecting) > 1:
		of = "the pools " + strings.Join(selecting, ", ")
	}
	warn := func(at, name, instead string) {
		instead = inPool.ReplaceAllString(instead, "$1 of "+of)
		remark("warning: MachineConfig %q: spec.config.%s: %s has no effect: %s", config.Name, at, name, instead)
	}
	check := func(at, name string) {
		for _, entry := range withoutEffect {
			if entry.name.MatchString(name) {
				warn(at, name, entry.instead)
				return
			}
		}
	}
	checkCRIO := func(at, name string) {
		for _, entry := range withoutCRIO {
			if containerRuntime == runtimeContainerd && entry.name.MatchString(name) {
				warn(at, name, entry.instead)
				return
			}
		}
	}
	if isSet := !slices.Contains([]string{"", update.DefaultKernel}, config.Spec.KernelType) || len(config.Spec.Extensions) > 0; isSet && containerRuntime == runtimeContainerd {
		remark("warning: MachineConfig %q: spec.kernelType and spec.extensions need rpm-ostree, which images with containerd rarely have: "+
			"install the kernel and the packages in the image of the hosts, and leave the fields out", config.Name)
	}
	checkVariables := func(at, contents string) {
		var found []string
		for variable := range openShiftVariables {
			if regexp.MustCompile(`(?m)^[^#;]*\b` + variable + `\s*=`).MatchString(contents) {
				found = append(found, variable)
			}
		}
		slices.Sort(found)
		for _, variable := range found {
			warn(at, variable, openShiftVariables[variable])
		}
	}
	editIgnition(config, func(document map[string]any) bool {
		for i, file := range itemsAt(document, "storage", "files") {
			name, _ := file["path"].(string)
			at := fmt.Sprintf("storage.files[%d]", i)
			check(at, path.Clean(name))
			checkCRIO(at, path.Clean(name))
			if strings.Contains(name, "/"+ignition.KubeletUnit+".d/") {
				checkVariables(at, contentsOf(file))
			}
		}
		for i, filesystem := range itemsAt(document, "storage", "filesystems") {
			name, _ := filesystem["path"].(string)
			checkCRIO(fmt.Sprintf("storage.filesystems[%d]", i), path.Clean(name))
		}
		for i, disk := range itemsAt(document, "storage", "disks") {
			for j, partition := range itemsAt(disk, "partitions") {
				if number := partition["number"]; number == nil || fmt.Sprint(number) == "0" {
					remark("warning: MachineConfig %q: spec.config.storage.disks[%d].partitions[%d] has no number: after a power loss, Ignition creates it again: "+
						"set number, on the disk of the operating system above that of Metal3's config drive", config.Name, i, j)
				}
			}
		}
		for i, unit := range itemsAt(document, "systemd", "units") {
			at := fmt.Sprintf("systemd.units[%d]", i)
			name, _ := unit["name"].(string)
			if contents, _ := unit["contents"].(string); contents == "" { // a user's own unit of this name has an effect
				check(at, name)
			}
			checkCRIO(at, name)
			if name != ignition.KubeletUnit {
				continue
			}
			for j, dropin := range itemsAt(unit, "dropins") {
				contents, _ := dropin["contents"].(string)
				checkVariables(fmt.Sprintf("%s.dropins[%d]", at, j), contents)
			}
		}
		return false
	})
}
