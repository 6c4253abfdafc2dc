package ignition

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// identityFlags are the kubelet's flags that say which Node it is. Like the kubelet, they take _ for -.
var identityFlags = regexp.MustCompile(`--(node[-_]labels|register[-_]with[-_]taints|hostname[-_]override|provider[-_]id)\b`)

// identitySettings are the fields of a KubeletConfiguration that do the same.
var identitySettings = []string{"registerWithTaints", "providerID"}

const curePool = "set nodeLabels and nodeTaints of the MachineConfigPool or the PoolbootConfig"

// text checks unit files, scripts, environment files and any other text for what says which Node the kubelet is. Comments
// may speak of it.
func (g *guard) text(place, what string, data []byte) {
	if bytes.IndexByte(data, 0) >= 0 {
		return // not text
	}
	if !identityFlags.Match(data) && !bytes.Contains(data, []byte(KubeletArgsVariable)) {
		return // no line of it needs a look
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || line[0] == ';' {
			continue
		}
		if flag := identityFlags.Find(line); flag != nil {
			g.refuse(place, "%s: the kubelet flag %s is Poolboot's: %s", what, flag, curePool)
			return
		}
		if bytes.Contains(line, []byte(KubeletArgsVariable)) {
			g.refuse(place, "%s: the variable %s is Poolboot's: use another", what, KubeletArgsVariable)
			return
		}
	}
}

// kubeletConfig checks a drop-in of the kubelet's configuration.
func (g *guard) kubeletConfig(place, name string, data []byte) {
	var settings map[string]any
	if err := yaml.Unmarshal(data, &settings); err != nil {
		g.refuse(place, "%s: the kubelet would not start with it: %v", name, err)
		return
	}
	for _, setting := range identitySettings {
		if _, has := settings[setting]; has {
			g.refuse(place, "%s: %s is Poolboot's: %s", name, setting, curePool)
		}
	}
}

// environmentDirectories hold environment files that units of the kubelet read, on one distribution or another.
var environmentDirectories = []string{"/etc/sysconfig", "/etc/default", "/etc/kubernetes", "/var/lib/kubelet"}

// holdsEnvironment says whether a file may be an environment file of the kubelet.
func holdsEnvironment(name string) bool {
	return strings.HasSuffix(name, ".env") ||
		slices.ContainsFunc(environmentDirectories, func(directory string) bool { return isBelow(name, directory) })
}
