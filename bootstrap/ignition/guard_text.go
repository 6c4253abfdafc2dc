package ignition

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// identityFlagNames are the kubelet's flags that say which Node it is.
var identityFlagNames = []string{"node-labels", "register-with-taints", "register-node", "hostname-override", "provider-id"}

// identitySettings are the fields of a KubeletConfiguration that do the same.
var identitySettings = []string{"registerWithTaints", "registerNode", "providerID"}

// reservedVariables are those that the kubelet's unit takes such flags from: Poolboot's own, kubeadm's, and
// OpenShift's.
var reservedVariables = []string{
	KubeletArgsVariable, KubeadmArgsVariable, "CUSTOM_KUBELET_LABELS", "KUBELET_NODE_NAME", "KUBELET_PROVIDERID",
}

var (
	// identityFlags match the flags. Like the kubelet, they take _ for -.
	identityFlags = regexp.MustCompile(`--(?:` + strings.ReplaceAll(strings.Join(identityFlagNames, "|"), "-", "[-_]") + `)\b`)
	// assignments match where a variable is set.
	assignments = regexp.MustCompile(`\b(` + strings.Join(reservedVariables, "|") + `)\s*=`)
	// settingLines match where a setting is made in a text that holds a KubeletConfiguration.
	settingLines = regexp.MustCompile(`(?i)\b(` + strings.Join(identitySettings, "|") + `)\s*:`)
	// renamings match commands and settings that change the host's name.
	renamings = regexp.MustCompile(`\bhostnamectl\s+(?:-\S+\s+)*(?:set-hostname|hostname\s+[\w$])|\bkernel[./]hostname\s*=`)
)

var (
	kubeletConfiguration = []byte("KubeletConfiguration")
	// telltales are words of which one is in everything that the expressions but the first match: they are found
	// faster.
	telltales = [][]byte{[]byte("KUBELET_"), []byte("hostname"), kubeletConfiguration}
)

const curePool = "set nodeLabels and nodeTaints of the MachineConfigPool or the PoolbootConfig"

// text checks unit files, scripts, environment files and any other text for what says which Node the kubelet is.
// Comments may speak of it.
func (g *guard) text(place, what string, data []byte) {
	plain := data
	if isDisguised(data) {
		plain = unquoted(data)
	}
	if !identityFlags.Match(plain) && !slices.ContainsFunc(telltales, func(word []byte) bool { return bytes.Contains(plain, word) }) {
		return // no line of it needs a look
	}
	plain = unquoted(withoutComments(data))
	switch flag, variable := identityFlags.Find(plain), assignments.FindSubmatch(plain); {
	case flag != nil:
		g.refuse(place, "%s: the kubelet flag %s is Poolboot's: %s", what, flag, curePool)
	case variable != nil:
		g.refuse(place, "%s: the variable %s is Poolboot's: use another", what, variable[1])
	case renamings.Match(plain):
		g.refuse(place, "%s: %q would change the host's name: %s", what, renamings.Find(plain), cures[HostnamePath])
	case bytes.Contains(plain, kubeletConfiguration):
		if setting := settingLines.FindSubmatch(plain); setting != nil {
			g.refuseSetting(place, what, string(setting[1]))
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
	for setting := range settings {
		// The kubelet merges drop-ins as JSON in which capitals make no difference.
		if slices.ContainsFunc(identitySettings, func(reserved string) bool { return strings.EqualFold(reserved, setting) }) {
			g.refuseSetting(place, name, setting)
		}
	}
}

func (g *guard) refuseSetting(place, what, setting string) {
	g.refuse(place, "%s: %s is Poolboot's: %s", what, setting, curePool)
}

func isKubeletConfig(name string) bool {
	return isBelow(name, KubeletConfigDirectory) && path.Ext(name) == ".conf"
}

// environmentDirectories hold environment files that units of the kubelet read, on one distribution or another.
var environmentDirectories = []string{"/etc/sysconfig", "/etc/default", "/etc/kubernetes", "/var/lib/kubelet", "/run"}

// holdsEnvironment says whether a file may be an environment file of the kubelet.
func holdsEnvironment(name string) bool {
	return strings.HasSuffix(name, ".env") ||
		slices.ContainsFunc(environmentDirectories, func(directory string) bool { return isBelow(name, directory) })
}

// isEnvironmentOfKubelet is holdsEnvironment without what is made at every boot.
func isEnvironmentOfKubelet(name string) bool {
	return holdsEnvironment(name) && !isBelow(name, "/run")
}

// isDisguised says whether a text has escapes, or quotes within a word.
func isDisguised(data []byte) bool {
	if bytes.IndexByte(data, '\\') >= 0 {
		return true
	}
	isWord := func(c byte) bool {
		return c == '-' || c == '_' || c == '"' || c == '\'' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	for i := 1; i < len(data)-1; i++ {
		if c := data[i]; (c == '"' || c == '\'') && isWord(data[i-1]) && isWord(data[i+1]) {
			return true
		}
	}
	return false
}

// withoutComments leaves out the lines that are comments to a shell and to systemd. A line in quotes, or behind one
// that goes on, is none.
func withoutComments(data []byte) []byte {
	out := make([]byte, 0, len(data))
	var quote byte
	goesOn := false
	for len(data) > 0 {
		line := data
		if end := bytes.IndexAny(data, "\n\r\x00"); end >= 0 {
			line = data[:end+1]
		}
		data = data[len(line):]
		if text := bytes.TrimSpace(line); quote == 0 && !goesOn && len(text) > 0 && (text[0] == '#' || text[0] == ';') {
			continue
		}
		goesOn = false
		for i := 0; i < len(line); i++ {
			switch c := line[i]; {
			case c == '\\' && quote != '\'':
				i++
				goesOn = i == len(line)-1
			case c == quote:
				quote = 0
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			}
		}
		out = append(out, line...)
	}
	return out
}

// unquoted is a text as a shell or systemd would read it: without quotes, with escapes undone and lines that go on
// joined.
func unquoted(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"' || c == '\'':
		case c != '\\' || i+1 == len(data):
			out = append(out, c)
		default:
			i++
			length, base := 0, 16
			switch next := data[i]; {
			case next == '\n':
				continue
			case next == 'x':
				length = 2
			case next == 'u':
				length = 4
			case next >= '0' && next <= '7':
				i--
				length, base = 3, 8
			}
			code, err := strconv.ParseUint(string(data[i+1:min(i+1+length, len(data))]), base, 8)
			if length == 0 || err != nil {
				out = append(out, data[i])
				continue
			}
			out = append(out, byte(code))
			i += length
		}
	}
	return out
}
