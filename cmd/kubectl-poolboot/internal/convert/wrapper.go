package convert

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
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

// wrapperDropin is a drop-in of the kubelet as it was written, with the command by which it starts the kubelet.
type wrapperDropin struct {
	config, name string
	at           string   // the path of its contents
	wrapper      []string // nil if it has no such command
}

// setWrappers moves the commands that start the kubelet in a mount namespace from the drop-ins of MachineConfigs to the
// pools that render these.
func setWrappers(configs []poolv1.MachineConfig, pools []poolv1.MachineConfigPool, remark func(string, ...any)) {
	setsFlags := findExtraArgs(configs)
	dropinsOf := map[string][]wrapperDropin{} // by the names of MachineConfigs
	for i := range configs {
		name := configs[i].Name
		editDropins(&configs[i], func(at, unit, dropin, contents string) string {
			if unit != ignition.KubeletUnit {
				return contents
			}
			rest, wrapper := takeWrapper(contents)
			dropinsOf[name] = append(dropinsOf[name], wrapperDropin{name, dropin, at, wrapper})
			if wrapper == nil {
				return contents
			}
			if this := describeDropin(name, dropin); len(extraArgs.FindAllString(rest, -1)) > len(extraArgs.FindAllString(contents, -1)) {
				for _, other := range setsFlags {
					remark("warning: MachineConfig %q: %s: the flags in ExecStart of its drop-in %s of %s become KUBELET_EXTRA_ARGS, which %s sets too, "+
						"and hosts with both use one of them: merge them", name, at, dropin, unit, strings.Replace(other, this, "the drop-in", 1))
				}
			}
			isSelected := func(p poolv1.MachineConfigPool) bool { return pool.Selects(p, configs[i].Labels) }
			if !slices.ContainsFunc(pools, isSelected) {
				remark("warning: MachineConfig %q: %s: no pool of the files selects it, and ExecStart of its drop-in %s of %s is left out: "+
					"set spec.kubeletWrapper: [%s] in the pools that will select it", name, at, dropin, unit, strings.Join(wrapper, ", "))
			}
			return rest
		})
	}
	var worker []string // the command of the pool worker, which is first
	warned := sets.New[string]()
	for i := range pools {
		applies, losers := findWrapper(renderedBy(&pools[i], pools, configs), dropinsOf)
		for _, loser := range losers {
			if key := loser.config + "/" + loser.by.config; !warned.Has(key) && !slices.Equal(loser.wrapper, loser.by.wrapper) {
				warned.Insert(key)
				remark("warning: MachineConfig %q: %s: its drop-in %s of %s starts the kubelet by %q: the drop-in %s of MachineConfig %q wins in the pool %s, as in OpenShift",
					loser.config, loser.at, loser.name, ignition.KubeletUnit, strings.Join(loser.wrapper, " "), loser.by.name, loser.by.config, pools[i].Name)
			}
		}
		switch {
		case slices.Equal(applies.wrapper, worker):
		case applies.wrapper == nil:
			pools[i].Spec.KubeletWrapper = []string{noWrapper}
			remark("note: MachineConfigPool %q: it does not start the kubelet by the command of worker: spec.kubeletWrapper is [%s], which starts it directly",
				pools[i].Name, noWrapper)
		default:
			pools[i].Spec.KubeletWrapper = applies.wrapper
			remark("note: MachineConfig %q: %s: ExecStart of the drop-in %s of %s becomes spec.kubeletWrapper of the pool %s. "+
				"The container runtime must start in the same namespace: hosts with containerd need a drop-in for it", applies.config, applies.at, applies.name, ignition.KubeletUnit, pools[i].Name)
		}
		if i == 0 {
			worker = applies.wrapper
		}
	}
}

// noWrapper is the wrapper that starts the kubelet directly, for a pool that must not inherit that of worker.
const noWrapper = "/usr/bin/env"

// losingDropin is a drop-in whose command is not used because of another one.
type losingDropin struct {
	wrapperDropin
	by wrapperDropin
}

// findWrapper returns the drop-in by whose command hosts of OpenShift start the kubelet, if any, and those that lose
// against another one: the later MachineConfig wins for drop-ins of one name, and systemd uses ExecStart of the last
// drop-in by name.
func findWrapper(configs []string, dropinsOf map[string][]wrapperDropin) (applies wrapperDropin, losers []losingDropin) {
	byName := map[string]wrapperDropin{}
	for _, config := range configs {
		for _, dropin := range dropinsOf[config] {
			if earlier := byName[dropin.name]; earlier.wrapper != nil {
				losers = append(losers, losingDropin{earlier, dropin})
			}
			byName[dropin.name] = dropin
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		dropin := byName[name]
		if dropin.wrapper == nil {
			continue
		}
		if applies.wrapper != nil {
			losers = append(losers, losingDropin{applies, dropin})
		}
		applies = dropin
	}
	return applies, losers
}

// renderedBy returns the names of the MachineConfigs that a pool renders, in the order of the merge. The
// MachineConfigs are in the order of their names, and worker is the first pool.
func renderedBy(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (names []string) {
	for _, of := range []*poolv1.MachineConfigPool{&pools[0], p} {
		for i := range configs {
			if pool.Selects(*of, configs[i].Labels) && !slices.Contains(names, configs[i].Name) {
				names = append(names, configs[i].Name)
			}
		}
	}
	return names
}

// extraArgs matches a line of a drop-in that sets the flags of the kubelet.
var extraArgs = regexp.MustCompile(`(?m)^[^#;\n]*\bKUBELET_EXTRA_ARGS\s*=`)

func describeDropin(config, dropin string) string {
	return fmt.Sprintf("%s of MachineConfig %q", dropin, config)
}

// findExtraArgs names the drop-ins of the kubelet that set its flags.
func findExtraArgs(configs []poolv1.MachineConfig) (found []string) {
	for i := range configs {
		editDropins(&configs[i], func(_, unit, dropin, contents string) string {
			if unit == ignition.KubeletUnit && extraArgs.MatchString(contents) {
				found = append(found, describeDropin(configs[i].Name, dropin))
			}
			return contents
		})
	}
	return found
}
