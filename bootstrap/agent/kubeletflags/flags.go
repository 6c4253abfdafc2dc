package kubeletflags

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Flag is a flag of the kubelet.
type Flag struct{ Name, Value string }

// String returns the flag as on a command line.
func (f Flag) String() string { return "--" + f.Name + "=" + f.Value }

// taintsFlag is the flag that kubeadm derives from the taints of a worker.
const taintsFlag = "register-with-taints"

var (
	namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	// valuePattern excludes what systemd or a shell would read in an environment file.
	valuePattern = regexp.MustCompile(`^[^\s"'\\$` + "`" + `]*$`)
)

// FlagsOf returns the flags that kubeadm writes for a JoinConfiguration of a worker in the format v1beta4, and that
// come from the configuration alone, in the order of kubeadm: the taints, and then the flags of the configuration. The
// flag for the name of the Node is not among them: a Node keeps its name.
func FlagsOf(joinConfiguration []byte) ([]Flag, error) {
	var configuration struct {
		NodeRegistration struct {
			KubeletExtraArgs []Flag `json:"kubeletExtraArgs"`
			Taints           []struct{ Key, Value, Effect string }
		} `json:"nodeRegistration"`
	}
	if err := yaml.Unmarshal(joinConfiguration, &configuration); err != nil {
		return nil, err
	}
	node := configuration.NodeRegistration
	var flags []Flag
	var taints []string
	for _, taint := range node.Taints {
		// As kubeadm, which leaves out the = of an empty value.
		text := taint.Key
		if taint.Value != "" {
			text += "=" + taint.Value
		}
		taints = append(taints, text+":"+taint.Effect)
	}
	if len(taints) > 0 {
		flags = append(flags, Flag{taintsFlag, strings.Join(taints, ",")})
	}
	flags = append(flags, node.KubeletExtraArgs...)
	has := map[string]bool{}
	for _, flag := range flags {
		if !namePattern.MatchString(flag.Name) || !valuePattern.MatchString(flag.Value) {
			return nil, fmt.Errorf("nodeRegistration has the flag %q, which has a character that an environment file can't pass", flag)
		}
		if has[flag.Name] {
			return nil, fmt.Errorf("nodeRegistration has the flag --%s twice", flag.Name)
		}
		has[flag.Name] = true
	}
	return flags, nil
}

// Rewrite returns kubeadm's environment file with other flags: those of after, and not those that only before has.
// All other flags, lines and comments stay as they are. The flags are where the first of them was: kubeadm writes
// them in one group, after those that do not come from its configuration.
func Rewrite(document []byte, before, after []Flag) ([]byte, error) {
	lines := strings.SplitAfter(string(document), "\n")
	found := -1
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimLeft(line, " \t"), ignition.KubeadmArgsVariable+"=") {
			continue
		}
		if found >= 0 {
			return nil, fmt.Errorf("it sets %s twice: remove one of the lines", ignition.KubeadmArgsVariable)
		}
		found = i
	}
	if found < 0 {
		return nil, fmt.Errorf("it does not set %s, as kubeadm does: restore it, or replace the Machine", ignition.KubeadmArgsVariable)
	}
	line := lines[found]
	start := strings.Index(line, "=") + 1
	value := strings.TrimRight(line[start:], " \t\r\n")
	rest := line[start+len(value):]
	quote := ""
	if strings.HasPrefix(value, `"`) {
		if len(value) < 2 || !strings.HasSuffix(value, `"`) || strings.HasSuffix(value, `\"`) {
			return nil, errForm
		}
		quote, value = `"`, value[1:len(value)-1]
	} else if strings.ContainsAny(value, `"'\`) {
		return nil, errForm
	}
	lines[found] = line[:start] + quote + strings.Join(rewriteFlags(strings.Split(value, " "), before, after), " ") + quote + rest
	return []byte(strings.Join(lines, "")), nil
}

var errForm = errors.New("it has a form that kubeadm does not write: write " + ignition.KubeadmArgsVariable + `="--flag=value …" in one line`)

// rewriteFlags changes the flags of a command line.
func rewriteFlags(arguments []string, before, after []Flag) []string {
	managed := map[string]bool{}
	for _, flag := range slices.Concat(before, after) {
		managed[flag.Name] = true
	}
	var kept []string
	group := -1
	for i := 0; i < len(arguments); i++ {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(arguments[i], "--"), "=")
		switch {
		case arguments[i] == "":
			continue
		case !strings.HasPrefix(arguments[i], "--") || !managed[name]:
			kept = append(kept, arguments[i])
			continue
		case group < 0:
			group = len(kept)
		}
		if !hasValue && i+1 < len(arguments) && !strings.HasPrefix(arguments[i+1], "-") {
			i++ // the form --name value
		}
	}
	if group < 0 {
		group = len(kept)
	}
	var flags []string
	for _, flag := range after {
		flags = append(flags, flag.String())
	}
	return slices.Insert(kept, group, flags...)
}
