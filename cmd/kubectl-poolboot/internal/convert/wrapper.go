package convert

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// flagValue matches one character of a flag's value that no shell and no unit interprets.
const flagValue = `[A-Za-z0-9_./:=@,+-]`

var (
	// inNamespace matches the command by which drop-ins for telco hosts start the kubelet in a mount namespace: the
	// path of the namespace, and flags that are added to the kubelet's command. A command with anything else, as what
	// only a shell understands, does not match.
	inNamespace = regexp.MustCompile(`^(?:\S*/)?(?:(?:ba)?sh -c ["']?(?:exec )?(?:\S*/)?)?nsenter --mount=([^\s"']+) ` +
		`"?\$\{?ORIG_EXECSTART\}?"?((?: --?[A-Za-z0-9][A-Za-z0-9-]*(?:=` + flagValue + `*| ` + flagValue + `+)?)*) ?["']*$`)
	// wrapperWord matches what a word of kubeletWrapper can be.
	wrapperWord = regexp.MustCompile(`^/[A-Za-z0-9_./:=@,+-]+$`)
)

// nsenterPath is the path of nsenter on a host.
const nsenterPath = "/usr/bin/nsenter"

// takeWrapper returns the kubeletWrapper that a drop-in of the kubelet means, and the drop-in without this command and
// without the lines by which it reads the kubelet's original command. Without such a command, the wrapper is nil.
func takeWrapper(contents string) (rest string, wrapper []string) {
	var kept []string
	flags := ""
	for _, line := range logicalLines(contents) {
		name, value, _ := strings.Cut(line, "=")
		match := inNamespace.FindStringSubmatch(strings.Join(strings.Fields(value), " "))
		switch name = strings.TrimSpace(name); {
		case name == "ExecStart" && strings.TrimSpace(value) == "":
		case name == "ExecStart" && match != nil:
			namespace := path.Clean(strings.ReplaceAll(match[1], "%t", "/run"))
			if wrapper != nil || !wrapperWord.MatchString(namespace) {
				return contents, nil
			}
			wrapper, flags = []string{nsenterPath, "--mount=" + namespace}, strings.TrimSpace(match[2])
		case name == "ExecStart":
			return contents, nil
		case name == "ExecStartPre" && strings.Contains(value, "ORIG_EXECSTART"),
			name == "EnvironmentFile" && strings.Contains(value, "-execstart.env"):
		default:
			kept = append(kept, line)
		}
	}
	if wrapper == nil {
		return contents, nil
	}
	rest = strings.TrimSpace(strings.Join(kept, "\n")) + "\n"
	if flags != "" {
		rest += "Environment=\"KUBELET_EXTRA_ARGS=" + flags + "\"\n"
	}
	return rest, wrapper
}

// logicalLines returns the lines of a unit, with a line that ends in a backslash joined to the next one. Comments end
// with their line.
func logicalLines(contents string) (lines []string) {
	before := ""
	for line := range strings.Lines(contents) {
		line = strings.TrimRight(line, "\r\n")
		if before != "" {
			line = before + " " + strings.TrimSpace(line)
		}
		before = ""
		if part, isContinued := strings.CutSuffix(line, `\`); isContinued && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			before = strings.TrimRight(part, " \t")
			continue
		}
		lines = append(lines, line)
	}
	if before != "" {
		lines = append(lines, before)
	}
	return lines
}

// setWrappers moves the commands that start the kubelet in a mount namespace from the drop-ins of MachineConfigs to the
// pools that select these.
func setWrappers(configs []poolv1.MachineConfig, pools []poolv1.MachineConfigPool, remark func(string, ...any)) (errs []error) {
	setsFlags := findExtraArgs(configs)
	for i := range configs {
		edit := func(unit, dropin, contents string) string {
			if unit != ignition.KubeletUnit {
				return contents
			}
			rest, wrapper := takeWrapper(contents)
			if wrapper == nil {
				return contents
			}
			if this := describeDropin(configs[i].Name, dropin); len(extraArgs.FindAllString(rest, -1)) > len(extraArgs.FindAllString(contents, -1)) {
				for _, other := range setsFlags {
					remark("warning: MachineConfig %q: the flags in ExecStart of its drop-in %s of %s become KUBELET_EXTRA_ARGS, which %s sets too, "+
						"and hosts with both use one of them: merge them", configs[i].Name, dropin, unit, strings.Replace(other, this, "the drop-in", 1))
				}
			}
			isSelected := false
			for j := range pools {
				p := &pools[j]
				isSelected = isSelected || matchesSelector(p.Spec.MachineConfigSelector, configs[i].Labels)
				switch {
				case !matchesSelector(p.Spec.MachineConfigSelector, configs[i].Labels):
				case p.Spec.KubeletWrapper != nil && !slices.Equal(p.Spec.KubeletWrapper, wrapper):
					errs = append(errs, fmt.Errorf("MachineConfig %q: its drop-in %s of %s starts the kubelet by %q, and another MachineConfig of the pool %s by %q: "+
						"remove one of them", configs[i].Name, dropin, unit, strings.Join(wrapper, " "), p.Name, strings.Join(p.Spec.KubeletWrapper, " ")))
				default:
					p.Spec.KubeletWrapper = wrapper
					remark("note: MachineConfig %q: ExecStart of the drop-in %s of %s becomes spec.kubeletWrapper of the pool %s. "+
						"The container runtime must start in the same namespace: hosts with containerd need a drop-in for it", configs[i].Name, dropin, unit, p.Name)
				}
			}
			if !isSelected {
				remark("warning: MachineConfig %q: no pool of the files selects it, and ExecStart of its drop-in %s of %s is left out: "+
					"set spec.kubeletWrapper: [%s] in the pools that will select it", configs[i].Name, dropin, unit, strings.Join(wrapper, ", "))
			}
			return rest
		}
		editDropins(&configs[i], edit)
	}
	return errs
}

// extraArgs matches a line of a drop-in that sets the flags of the kubelet.
var extraArgs = regexp.MustCompile(`(?m)^[^#;\n]*\bKUBELET_EXTRA_ARGS\s*=`)

func describeDropin(config, dropin string) string {
	return fmt.Sprintf("%s of MachineConfig %q", dropin, config)
}

// findExtraArgs names the drop-ins of the kubelet that set its flags.
func findExtraArgs(configs []poolv1.MachineConfig) (found []string) {
	for i := range configs {
		editDropins(&configs[i], func(unit, dropin, contents string) string {
			if unit == ignition.KubeletUnit && extraArgs.MatchString(contents) {
				found = append(found, describeDropin(configs[i].Name, dropin))
			}
			return contents
		})
	}
	return found
}
