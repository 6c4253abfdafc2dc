package update

import (
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// pinning are the settings by which a kubelet pins Pods to CPUs and memory, by the names of their fields and flags.
type pinning map[string]any

var (
	// pinningFields are the fields of a KubeletConfiguration that decide what a kubelet pins.
	pinningFields = []string{
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "memoryManagerPolicy", "reservedMemory", "reservedSystemCPUs",
		"topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope",
	}
	// reservations count only for a kubelet that pins something: it pins no Pod to what they reserve.
	reservations = []string{"kubeReserved", "systemReserved", "--kube-reserved", "--system-reserved"}
	// pinningFlag matches the flags of the kubelet for these fields.
	pinningFlag = regexp.MustCompile(`(--(?:(?:cpu-manager-policy|memory-manager-policy|topology-manager-policy)(?:-options)?|topology-manager-scope|` +
		`reserved-cpus|reserved-memory|kube-reserved|system-reserved))[=\s]+([^\s"']+)`)
	// kubeletFlagFiles are environment files from which units of images take flags of the kubelet.
	kubeletFlagFiles = []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"}
)

// pinningGate is the feature gate that changes the format of checkpoints.
const pinningGate = "PodLevelResourceManagers"

// pinningChange is how a configuration changes what the kubelet pins. The kubelet keeps a checkpoint of it, and does
// not start with one that was written with other settings.
type pinningChange struct {
	// names are the settings that change.
	names []string
	// before and after are the settings of each entry.
	before, after map[Item]pinning
}

// findPinningChange compares two configurations. What the kubelet does depends on the contents of a file that differs
// on the host.
func findPinningChange(before, after ignition.Config, onHost differing) pinningChange {
	change := pinningChange{before: pinningsIn(before), after: pinningsIn(after)}
	maps.DeleteFunc(change.before, func(entry Item, _ pinning) bool { return entry.Kind == KindFile && onHost[path.Clean(entry.Name)] })
	from, to := mergePinnings(change.before), mergePinnings(change.after)
	all := maps.Clone(from)
	maps.Copy(all, to)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		counts := !slices.Contains(reservations, name) || from.isStatic() || to.isStatic()
		if counts && !reflect.DeepEqual(from[name], to[name]) {
			change.names = append(change.names, name)
		}
	}
	return change
}

// isStatic reports whether the kubelet pins CPUs or memory.
func (p pinning) isStatic() bool {
	for _, value := range p {
		if value == "static" || value == "Static" {
			return true
		}
	}
	return false
}

// ruleFor returns the rule for an entry that differs. If the entry changes what the kubelet pins, the rule is that of
// the policy and what the kubelet needs: a policy can't leave that out, because the kubelet would not start.
func (c *pinningChange) ruleFor(entry Item, ofPolicy Rule) Rule {
	var names []string
	for _, name := range c.names {
		if !reflect.DeepEqual(c.before[entry][name], c.after[entry][name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || slices.ContainsFunc(ofPolicy.Actions, isOfType(Reboot)) {
		return ofPolicy
	}
	// The kubelet stops with the unit. With its next start, the unit first removes the checkpoints.
	actions := []Action{{Type: Drain}, {Type: Stop, Unit: ignition.CheckpointsUnit}}
	for _, action := range append(slices.Clone(ofPolicy.Actions), Action{Type: Restart, Unit: ignition.KubeletUnit, IfExists: true}) {
		if action.Type != None && !slices.Contains(actions, action) {
			actions = append(actions, action)
		}
	}
	return Rule{Actions: actions, Reason: "it changes " + strings.Join(names, ", ") + ", so the kubelet must start without its checkpoints of CPUs and memory"}
}

// pinningsIn returns the settings of each entry of a configuration that has some.
func pinningsIn(config ignition.Config) map[Item]pinning {
	entries := map[Item]pinning{}
	for _, file := range config.Storage.Files {
		switch entry := (Item{KindFile, file.Path}); {
		case isKubeletDropIn(file.Path):
			entries[entry] = pinningInDropIn(textOf(file.Contents))
		case slices.Contains(kubeletFlagFiles, file.Path):
			entries[entry] = pinningInFlags(textOf(file.Contents))
		}
	}
	for _, link := range config.Storage.Links {
		if isKubeletDropIn(link.Path) { // the host computes what is in it
			computed := ptr.Deref(link.Target, "")
			entries[Item{KindLink, link.Path}] = pinning{"systemReserved": map[string]any{"cpu": computed, "memory": computed}}
		}
	}
	for _, unit := range config.Systemd.Units {
		if unit.Name == ignition.KubeletUnit {
			text := ptr.Deref(unit.Contents, "")
			for _, dropIn := range unit.Dropins {
				text += "\n" + ptr.Deref(dropIn.Contents, "")
			}
			entries[Item{KindUnit, unit.Name}] = pinningInFlags(text)
		}
	}
	return entries
}

// isKubeletDropIn reports whether a kubelet reads a path as a part of its configuration.
func isKubeletDropIn(name string) bool {
	return strings.HasPrefix(path.Clean(name), ignition.KubeletConfigDirectory+"/") && path.Ext(name) == ".conf"
}

// textOf returns the contents of a file, "" if they can't be read: then the update is impossible, or the guard refuses
// the file.
func textOf(contents types.Resource) string {
	text, err := hosttree.Decode(contents, nil)
	if err != nil {
		return ""
	}
	return string(text)
}

// pinningInDropIn returns the settings in a drop-in of the kubelet's configuration. One that is not YAML has none: the
// kubelet does not start with it.
func pinningInDropIn(text string) pinning {
	var fields map[string]any
	if yaml.Unmarshal([]byte(text), &fields) != nil {
		return nil
	}
	settings := pinning{}
	for _, name := range slices.Concat(pinningFields, reservations) {
		if value, ok := fields[name]; ok {
			settings[name] = value
		}
	}
	if gates, ok := fields["featureGates"].(map[string]any); ok && gates[pinningGate] != nil {
		settings[pinningGate] = gates[pinningGate]
	}
	return settings
}

// pinningInFlags returns the settings in flags of the kubelet, which can be in a unit or in an environment file.
func pinningInFlags(text string) pinning {
	settings := pinning{}
	for _, match := range pinningFlag.FindAllStringSubmatch(text, -1) {
		settings[match[1]] = match[2]
	}
	return settings
}

// mergePinnings merges the settings of all entries as the kubelet does: in the order of the paths, and objects by key.
func mergePinnings(entries map[Item]pinning) pinning {
	merged := pinning{}
	for _, entry := range slices.SortedFunc(maps.Keys(entries), func(a, b Item) int {
		return slices.Compare(strings.Split(a.Name, "/"), strings.Split(b.Name, "/"))
	}) {
		for name, value := range entries[entry] {
			base, isObject := merged[name].(map[string]any)
			if over, ok := value.(map[string]any); ok && isObject {
				base = maps.Clone(base)
				maps.Copy(base, over)
				value = base
			}
			merged[name] = value
		}
	}
	return merged
}
