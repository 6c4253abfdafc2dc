package ignition

import (
	"bytes"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// identityFlagNames are the kubelet's flags that identify its Node.
var identityFlagNames = []string{"node-labels", "register-with-taints", "register-node", "hostname-override", "provider-id"}

// identitySettings are the fields of a KubeletConfiguration that identify the Node.
var identitySettings = []string{"registerWithTaints", "registerNode", "providerID"}

// reservedVariables are the variables from which the kubelet's unit takes such flags: those of Poolboot, kubeadm and
// OpenShift.
var reservedVariables = []string{
	KubeletArgsVariable, KubeletCommandVariable, KubeadmArgsVariable, "CUSTOM_KUBELET_LABELS", "KUBELET_NODE_NAME", "KUBELET_PROVIDERID",
}

var (
	// identityFlags matches the flags. Like the kubelet, it accepts _ for -.
	identityFlags = regexp.MustCompile(`--(?:` + strings.ReplaceAll(strings.Join(identityFlagNames, "|"), "-", "[-_]") + `)\b`)
	// assignments matches assignments of reserved variables.
	assignments = regexp.MustCompile(`\b(` + strings.Join(reservedVariables, "|") + `)\s*=`)
	// settingLines matches identity settings in a text that contains a KubeletConfiguration.
	settingLines = regexp.MustCompile(`(?i)\b(` + strings.Join(identitySettings, "|") + `)\s*:`)
	// hostnameChanges matches commands and settings that change the host's name.
	hostnameChanges = regexp.MustCompile(`\bhostnamectl\s+(?:-\S+\s+)*(?:set-hostname|hostname\s+[\w$])|\bkernel[./]hostname\s*=`)
)

var (
	kubeletConfiguration = []byte("KubeletConfiguration")
	// searchTerms are words for a fast search: every match of these expressions, except identityFlags, contains one of
	// them.
	searchTerms = [][]byte{[]byte("KUBELET_"), []byte("hostname"), kubeletConfiguration}
)

const remedyPool = "set spec.node.labels and spec.node.taints of the MachineConfigPool or the PoolbootConfig"

// checkText checks unit files, scripts, environment files and any other text for settings that identify the kubelet's
// Node. Comments are not checked.
func (g *guard) checkText(place, what string, data []byte) {
	if !identityFlags.Match(data) && !slices.ContainsFunc(searchTerms, func(word []byte) bool { return bytes.Contains(data, word) }) {
		return
	}
	plain := removeComments(data)
	switch flag, variable := identityFlags.Find(plain), assignments.FindSubmatch(plain); {
	case flag != nil:
		g.refuse(place, "%s: the kubelet flag %s is reserved for Poolboot: %s", what, flag, remedyPool)
	case variable != nil:
		g.refuse(place, "%s: the variable %s is reserved for Poolboot: use another name", what, variable[1])
	case hostnameChanges.Match(plain):
		g.refuse(place, "%s: %q would change the host's name: %s", what, hostnameChanges.Find(plain), remedies[HostnamePath])
	case bytes.Contains(plain, kubeletConfiguration):
		if setting := settingLines.FindSubmatch(plain); setting != nil {
			g.refuseSetting(place, what, string(setting[1]))
		}
	}
}

// maxKubeletConfig is the maximum size of a drop-in of the kubelet's configuration, in bytes. All of its fields need
// much less, and parsing YAML is slow.
const maxKubeletConfig = 64 << 10

// checkKubeletConfig checks a drop-in of the kubelet's configuration.
func (g *guard) checkKubeletConfig(place, name string, data []byte) {
	if len(data) > maxKubeletConfig {
		g.refuse(place, "%s: the file has %d bytes, and at most %d are read: remove what is no setting", name, len(data), maxKubeletConfig)
		return
	}
	var document any
	if err := yaml.Unmarshal(data, &document); err != nil {
		why := "a key is no string, or a number is not finite" // in YAML, but not in JSON
		if _, malformed, isMalformed := strings.Cut(err.Error(), "yaml: "); isMalformed {
			why = malformed
		}
		g.refuse(place, "%s: the file is not valid YAML, and the kubelet would not start: %s: correct it", name, why)
		return
	}
	settings, isObject := document.(map[string]any)
	if document != nil && !isObject {
		g.refuse(place, "%s: the file %s, or the kubelet would not start", name, DescribeType(reflect.TypeFor[map[string]any](), document))
		return
	}
	for setting := range settings {
		// The kubelet decodes drop-ins as JSON, which ignores the case of keys.
		if slices.ContainsFunc(identitySettings, func(reserved string) bool { return strings.EqualFold(reserved, setting) }) {
			g.refuseSetting(place, name, setting)
		}
		if g.ControlPlane && strings.EqualFold(setting, "staticPodPath") {
			g.refuse(place, "%s: the control plane runs in static Pods: remove %s", name, setting)
		}
	}
}

// checkKubeletType checks the apiVersion and the kind of a whole drop-in of the kubelet's configuration. The kubelet
// compares them and their keys exactly.
func (g *guard) checkKubeletType(place, name string, data []byte) {
	const apiVersion, kind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	var settings map[string]any
	if len(data) > maxKubeletConfig || yaml.Unmarshal(data, &settings) != nil {
		return // checkKubeletConfig refuses it
	}
	if settings["apiVersion"] != apiVersion || settings["kind"] != kind {
		g.refuse(place, "%s: the file must have apiVersion: %s and kind: %s, or the kubelet would not start", name, apiVersion, kind)
	}
}

func (g *guard) refuseSetting(place, what, setting string) {
	g.refuse(place, "%s: %s is reserved for Poolboot: %s", what, setting, remedyPool)
}

func isKubeletConfig(name string) bool {
	return isBelow(name, KubeletConfigDirectory) && path.Ext(name) == ".conf"
}

// removeComments removes the lines that are comments for a shell and for systemd.
func removeComments(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for line := range bytes.Lines(data) {
		if text := bytes.TrimSpace(line); len(text) == 0 || text[0] != '#' && text[0] != ';' {
			out = append(out, line...)
		}
	}
	return out
}
