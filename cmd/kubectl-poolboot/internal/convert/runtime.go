package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// Limits of OpenShift for ContainerRuntimeConfigs.
const (
	minPidsLimit  = 20
	minLogSizeMax = 8192
)

var (
	runtimeLogLevels = []string{"", "trace", "debug", "info", "warn", "error", "fatal", "panic"}
	defaultRuntimes  = []string{"", "crun", "runc"}
)

// crioDropin is the path of a drop-in of CRI-O for a field of a ContainerRuntimeConfig, as OpenShift has it: each field
// has a file of its own, so that a custom pool overrides the fields of worker one by one.
func crioDropin(field string) string { return "/etc/crio/crio.conf.d/01-ctrcfg-" + field }

// containerdDropin is the path of a drop-in of containerd. It is imported with the default configuration of containerd
// 2.2 and newer.
func containerdDropin(name string) string { return "/etc/containerd/conf.d/01-" + name + ".toml" }

// containerdVersion is the version of the format of containerd's drop-ins. containerd 2 reads it.
const containerdVersion = 3

// convertRuntime returns MachineConfigs for the settings of container runtimes and registries. Without the name of a
// container runtime, they are for that of OpenShift, and a note names the other one.
func convertRuntime(objects *input.Objects, pools []poolv1.MachineConfigPool, arbiter poolv1.MachineConfigPool, with string, remark func(string, ...any),
) ([]poolv1.MachineConfig, []error) {
	configs, errs := convertRuntimeConfigs(input.Of[*input.ContainerRuntimeConfig](objects), pools, arbiter, cmp.Or(with, runtimeCRIO), remark)
	registries, more := convertRegistries(objects, pools, cmp.Or(with, runtimeCRIO), remark)
	configs, errs = append(configs, registries...), append(errs, more...)
	if len(configs) > 0 && with == "" {
		remark("note: the settings of container runtimes and registries are converted for CRI-O: if the hosts have containerd, add --container-runtime %s", runtimeContainerd)
	}
	return configs, errs
}

// convertRuntimeConfigs returns a MachineConfig for each pool that ContainerRuntimeConfigs select, and sets the
// kubelet sections of pools for what the kubelet does with containerd. If several select one pool, the last one wins
// field by field, as in OpenShift.
func convertRuntimeConfigs(configs []*input.ContainerRuntimeConfig, pools []poolv1.MachineConfigPool, arbiter poolv1.MachineConfigPool, with string,
	remark func(string, ...any),
) (converted []poolv1.MachineConfig, errs []error) {
	slices.SortStableFunc(configs, func(a, b *input.ContainerRuntimeConfig) int { return strings.Compare(a.Name, b.Name) })
	var valid []*input.ContainerRuntimeConfig
	for _, config := range configs {
		if err := checkRuntimeSettings(config); err != nil {
			errs = append(errs, err)
			continue
		}
		if warnUnselected(config, config.Spec.MachineConfigPoolSelector, pools, arbiter, remark) {
			valid = append(valid, config)
			warnRuntimeSettings(config, with, remark)
		}
	}
	for i := range pools {
		p := &pools[i]
		settings, wrong := settingsOf(valid, p)
		errs = append(errs, wrong...)
		if settings == (input.RuntimeSettings{}) {
			continue
		}
		files := crioFiles(settings)
		if with == runtimeContainerd {
			files = containerdFiles(settings)
			setContainerLogMaxSize(p, settings)
		}
		if len(files) == 0 {
			continue
		}
		config := newFilesConfig("99-"+p.Name+"-containerruntime", p.Name, files)
		if !matchesSelector(p.Spec.MachineConfigSelector, config.Labels) {
			errs = append(errs, fmt.Errorf("MachineConfigPool %q: spec.machineConfigSelector: must select MachineConfigs with the label %s: %s, "+
				"which OpenShift's own for ContainerRuntimeConfigs have: add it", p.Name, input.RoleLabel, p.Name))
			continue
		}
		converted = append(converted, config)
	}
	return converted, errs
}

// checkRuntimeSettings refuses what OpenShift refuses.
func checkRuntimeSettings(config *input.ContainerRuntimeConfig) error {
	s := config.Spec.ContainerRuntimeConfig
	var errs []error
	refuse := func(is bool, field, why string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("ContainerRuntimeConfig %q: spec.containerRuntimeConfig.%s: %s", config.Name, field, fmt.Sprintf(why, args...)))
		}
	}
	refuse(s.PidsLimit != 0 && s.PidsLimit < minPidsLimit, "pidsLimit", "is %d, and OpenShift refuses less than %d: correct it", s.PidsLimit, minPidsLimit)
	refuse(s.LogSizeMax != nil && s.LogSizeMax.Sign() > 0 && s.LogSizeMax.Value() <= minLogSizeMax,
		"logSizeMax", "is %s, and OpenShift refuses %d bytes or less: correct it", s.LogSizeMax, minLogSizeMax)
	refuse(s.OverlaySize != nil && s.OverlaySize.Sign() < 0, "overlaySize", "is %s, and must not be negative: correct it", s.OverlaySize)
	refuse(!slices.Contains(runtimeLogLevels, s.LogLevel), "logLevel", "is %q: set one of %s", s.LogLevel, strings.Join(runtimeLogLevels[1:], ", "))
	refuse(!slices.Contains(defaultRuntimes, s.DefaultRuntime), "defaultRuntime", "is %q: set one of %s", s.DefaultRuntime, strings.Join(defaultRuntimes[1:], ", "))
	return errors.Join(errs...)
}

// warnRuntimeSettings names what a container runtime does not have, and what hosts need.
func warnRuntimeSettings(config *input.ContainerRuntimeConfig, with string, remark func(string, ...any)) {
	s := config.Spec.ContainerRuntimeConfig
	warn := func(field, why string) {
		remark("warning: ContainerRuntimeConfig %q: spec.containerRuntimeConfig.%s%s", config.Name, field, why)
	}
	hasSize := s.OverlaySize != nil && !s.OverlaySize.IsZero()
	if with != runtimeContainerd {
		if hasSize {
			warn("overlaySize", " becomes /etc/containers/storage.conf, which replaces that of the image: CRI-O starts with it only if "+
				"/var/lib/containers is on XFS with the mount option pquota")
		}
		return
	}
	if s.PidsLimit != 0 {
		warn("pidsLimit", " is left out: containerd has no limit for containers: set podPidsLimit in spec.kubelet.configuration, which is for Pods")
	}
	if hasSize {
		warn("overlaySize", " is left out: containerd has no limit for the size of containers: set limits for ephemeral-storage in Pods, or a LimitRange")
	}
	if s.LogSizeMax != nil && s.LogSizeMax.Sign() < 0 {
		warn("logSizeMax", " is left out: the kubelet rotates the logs of containerd: set containerLogMaxSize in spec.kubelet.configuration")
	}
	if s.DefaultRuntime == "crun" {
		warn("defaultRuntime", ": hosts with containerd need crun in their image")
	}
}

// runtimeFields are the fields of a ContainerRuntimeConfig: their values, empty if they are not set, and how to
// copy one.
var runtimeFields = []struct {
	name  string
	value func(input.RuntimeSettings) string
	copy  func(to *input.RuntimeSettings, from input.RuntimeSettings)
}{
	{"pidsLimit", func(s input.RuntimeSettings) string { return numberOf(s.PidsLimit) },
		func(to *input.RuntimeSettings, from input.RuntimeSettings) { to.PidsLimit = from.PidsLimit }},
	{"logLevel", func(s input.RuntimeSettings) string { return s.LogLevel },
		func(to *input.RuntimeSettings, from input.RuntimeSettings) { to.LogLevel = from.LogLevel }},
	{"logSizeMax", func(s input.RuntimeSettings) string { return bytesOf(s.LogSizeMax) },
		func(to *input.RuntimeSettings, from input.RuntimeSettings) { to.LogSizeMax = from.LogSizeMax }},
	{"overlaySize", func(s input.RuntimeSettings) string { return bytesOf(s.OverlaySize) },
		func(to *input.RuntimeSettings, from input.RuntimeSettings) { to.OverlaySize = from.OverlaySize }},
	{"defaultRuntime", func(s input.RuntimeSettings) string { return s.DefaultRuntime },
		func(to *input.RuntimeSettings, from input.RuntimeSettings) { to.DefaultRuntime = from.DefaultRuntime }},
}

// numberOf returns a number as a text, and nothing for zero.
func numberOf(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// bytesOf returns a number of bytes as a text, and nothing for zero.
func bytesOf(size *resource.Quantity) string {
	if size == nil {
		return ""
	}
	return numberOf(size.Value())
}

// settingsOf returns the settings of a pool: each field is that of the newest ContainerRuntimeConfig that sets it.
// Those of which the files do not tell which one is newer are refused as a whole.
func settingsOf(configs []*input.ContainerRuntimeConfig, p *poolv1.MachineConfigPool) (merged input.RuntimeSettings, errs []error) {
	of := slices.DeleteFunc(slices.Clone(configs), func(c *input.ContainerRuntimeConfig) bool {
		return !matchesSelector(c.Spec.MachineConfigPoolSelector, p.Labels)
	})
	refused := sets.New[string]()
	for _, field := range runtimeFields {
		value := func(c *input.ContainerRuntimeConfig) string { return field.value(c.Spec.ContainerRuntimeConfig) }
		setting := slices.DeleteFunc(slices.Clone(of), func(c *input.ContainerRuntimeConfig) bool { return value(c) == "" })
		last := newest(setting, func(c *input.ContainerRuntimeConfig) metav1.ObjectMeta { return c.ObjectMeta })
		if len(last) == 0 {
			continue
		}
		field.copy(&merged, last[0].Spec.ContainerRuntimeConfig)
		if !slices.ContainsFunc(last, func(c *input.ContainerRuntimeConfig) bool { return value(c) != value(last[0]) }) {
			continue
		}
		for i, config := range last {
			refused.Insert(config.Name)
			errs = append(errs, fmt.Errorf("ContainerRuntimeConfig %q: spec.containerRuntimeConfig.%s: %q sets it too for the pool %s: OpenShift applies the newest one, "+
				"and the files don't tell which one that is: remove it from one of them", config.Name, field.name, otherOf(last, i).Name, p.Name))
		}
	}
	if len(errs) > 0 {
		var more []error
		merged, more = settingsOf(slices.DeleteFunc(of, func(c *input.ContainerRuntimeConfig) bool { return refused.Has(c.Name) }), p)
		errs = append(errs, more...)
	}
	return merged, errs
}

// crioFiles returns the files of CRI-O for settings.
func crioFiles(s input.RuntimeSettings) hostFiles {
	files := hostFiles{}
	set := func(field, name string, value any) {
		files.add(crioDropin(field), table{"crio": table{"runtime": table{name: value}}})
	}
	if s.PidsLimit != 0 {
		set("pidsLimit", "pids_limit", s.PidsLimit)
	}
	if s.LogLevel != "" {
		set("logLevel", "log_level", s.LogLevel)
	}
	if s.LogSizeMax != nil {
		set("logSizeMax", "log_size_max", s.LogSizeMax.Value())
	}
	if s.DefaultRuntime != "" {
		set("defaultRuntime", "default_runtime", s.DefaultRuntime)
	}
	if s.OverlaySize != nil {
		// The directories are the defaults, and the file must name them.
		files.add("/etc/containers/storage.conf", table{"storage": table{"driver": "overlay", "runroot": "/run/containers/storage", "graphroot": "/var/lib/containers/storage",
			"options": table{"overlay": table{"size": strconv.FormatInt(s.OverlaySize.Value(), 10)}}}})
	}
	return files
}

// containerdFiles returns the drop-ins of containerd for settings.
func containerdFiles(s input.RuntimeSettings) hostFiles {
	files := hostFiles{}
	if s.LogLevel != "" {
		files.add(containerdDropin("ctrcfg-logLevel"), table{"version": containerdVersion, "debug": table{"level": s.LogLevel}})
	}
	if name := s.DefaultRuntime; name != "" {
		runtimes := table{"default_runtime_name": name}
		if name != "runc" { // which containerd has already
			runtimes["runtimes"] = table{name: table{"runtime_type": "io.containerd.runc.v2", "options": table{"BinaryName": name, "SystemdCgroup": true}}}
		}
		files.add(containerdDropin("ctrcfg-defaultRuntime"), table{"version": containerdVersion,
			"plugins": table{"io.containerd.cri.v1.runtime": table{"containerd": runtimes}}})
	}
	return files
}

// setContainerLogMaxSize has the kubelet rotate logs of a size, as it does with containerd. A size in the kubelet
// section of the pool is kept.
func setContainerLogMaxSize(p *poolv1.MachineConfigPool, s input.RuntimeSettings) {
	if s.LogSizeMax == nil || s.LogSizeMax.Sign() < 0 {
		return
	}
	section := map[string]any{"apiVersion": kubelet.APIVersion, "kind": kubelet.Kind, "containerLogMaxSize": s.LogSizeMax.String()}
	if p.Spec.Kubelet.Configuration != nil {
		var own map[string]any
		utilruntime.Must(kjson.UnmarshalCaseSensitivePreserveInts(p.Spec.Kubelet.Configuration.Raw, &own))
		maps.Copy(section, own)
	}
	raw, err := json.Marshal(section)
	utilruntime.Must(err)
	p.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: raw}
}

// suffixAnnotation numbers the KubeletConfigs, and the ContainerRuntimeConfigs, in the order in which OpenShift read
// them. The first one does not have the annotation, or an empty value.
const suffixAnnotation = "machineconfiguration.openshift.io/mc-name-suffix"

// newest returns the objects that can be the one that OpenShift read last: several if their numbers and ages do not
// tell which one it is.
func newest[T any](of []T, meta func(T) metav1.ObjectMeta) (last []T) {
	for _, object := range of {
		if !slices.ContainsFunc(of, func(other T) bool { return isLater(meta(other), meta(object)) }) {
			last = append(last, object)
		}
	}
	return last
}

// otherOf returns the first of several objects, and for the first one the second.
func otherOf[T any](all []T, than int) T {
	if than == 0 {
		return all[1]
	}
	return all[0]
}

// isLater reports whether OpenShift read an object later than another one, by its number or its age.
func isLater(object, than metav1.ObjectMeta) bool {
	if suffixOf(object) != suffixOf(than) {
		return suffixOf(object) > suffixOf(than)
	}
	return !than.CreationTimestamp.IsZero() && object.CreationTimestamp.After(than.CreationTimestamp.Time)
}

// suffixOf returns the number that OpenShift gave an object: a higher one was read later.
func suffixOf(object metav1.ObjectMeta) int {
	number, _ := strconv.Atoi(object.Annotations[suffixAnnotation])
	return number
}
