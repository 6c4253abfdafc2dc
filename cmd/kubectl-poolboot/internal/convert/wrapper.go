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
	// wrapperWord matches what a word of a kubelet wrapper can be.
	wrapperWord = regexp.MustCompile(`^/[A-Za-z0-9_./:=@,+-]+$`)
)

// nsenterPath is the path of nsenter on a host.
const nsenterPath = "/usr/bin/nsenter"

var (
	// readsOriginal matches the values of lines by which drop-ins for telco hosts read the kubelet's original command.
	readsOriginal = map[string]*regexp.Regexp{
		"ExecStartPre":    regexp.MustCompile(`^-?(?:\S*/)?extractExecStart %n \S+-execstart\.env ORIG_EXECSTART$`),
		"EnvironmentFile": regexp.MustCompile(`^-?/*(?:%t|run)/%[nNpP]-execstart\.env$`),
	}
	// seemsToRead matches values of such lines that can do something else too.
	seemsToRead = map[string]*regexp.Regexp{"ExecStartPre": regexp.MustCompile(`ORIG_EXECSTART`), "EnvironmentFile": regexp.MustCompile(`-execstart\.env`)}
)

// takenWrapper is the command in a drop-in of the kubelet, and the drop-in without it.
type takenWrapper struct {
	wrapper []string // for kubelet.wrapper; nil if the drop-in has no such command
	flags   string   // of the kubelet, in the command
	lines   []string // of the drop-in without the command and without the lines that read the kubelet's original command
	flagsAt int      // the line before which the flags belong
	doubted []string // the settings that are kept and seem to read the kubelet's original command
}

// takeWrapper takes the command that starts the kubelet in a mount namespace from a drop-in.
func takeWrapper(contents string) (taken takenWrapper) {
	for _, line := range logicalLines(contents) {
		name, value, _ := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.Join(strings.Fields(value), " ")
		match := inNamespace.FindStringSubmatch(value)
		switch {
		case name == "ExecStart" && value == "":
		case name == "ExecStart" && match != nil:
			namespace := path.Clean(strings.ReplaceAll(match[1], "%t", "/run"))
			if taken.wrapper != nil || !wrapperWord.MatchString(namespace) {
				return takenWrapper{}
			}
			taken.wrapper, taken.flags, taken.flagsAt = []string{nsenterPath, "--mount=" + namespace}, strings.TrimSpace(match[2]), len(taken.lines)
		case name == "ExecStart":
			return takenWrapper{}
		case readsOriginal[name] != nil && readsOriginal[name].MatchString(value):
		default:
			if seemsToRead[name] != nil && seemsToRead[name].MatchString(value) {
				taken.doubted = append(taken.doubted, name)
			}
			taken.lines = append(taken.lines, line)
		}
	}
	return taken
}

// rest returns the drop-in without the command, with its flags.
func (t takenWrapper) rest() string {
	lines := t.lines
	if t.flags != "" {
		lines = slices.Insert(slices.Clone(lines), t.flagsAt, "Environment=\"KUBELET_EXTRA_ARGS="+t.flags+"\"")
	}
	return strings.TrimSpace(strings.Join(lines, "\n")) + "\n"
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
	takenWrapper
	config, name string
	at           string // the path of its contents
}

// setWrappers moves the commands that start the kubelet in a mount namespace from the drop-ins of MachineConfigs to the
// pools that render these.
func setWrappers(configs []poolv1.MachineConfig, pools []poolv1.MachineConfigPool, remark func(string, ...any)) {
	dropinsOf := map[string][]wrapperDropin{} // by the names of MachineConfigs
	for i := range configs {
		name := configs[i].Name
		editDropins(&configs[i], func(at, unit, dropin, contents string) string {
			if unit == ignition.KubeletUnit {
				dropinsOf[name] = append(dropinsOf[name], wrapperDropin{takeWrapper(contents), name, dropin, at})
			}
			return contents
		})
	}
	appliesTo, losers := map[string]wrapperDropin{}, make([][]losingDropin, len(pools)) // by the names of pools
	for i := range pools {
		appliesTo[pools[i].Name], losers[i] = findWrapper(renderedBy(&pools[i], pools, configs), dropinsOf)
	}
	takeCommands(configs, pools, remark)
	warned := sets.New[string]()
	for i := range pools {
		for _, loser := range losers[i] {
			hasFlags := loser.flags != "" && loser.name != loser.by.name // otherwise it is replaced with its flags
			key := loser.config + "/" + loser.by.config
			if warned.Has(key) || !hasFlags && slices.Equal(loser.wrapper, loser.by.wrapper) {
				continue
			}
			warned.Insert(key)
			flags := ""
			if hasFlags {
				flags = fmt.Sprintf(". Its flags %s are KUBELET_EXTRA_ARGS in this pool too, unless a later drop-in sets it: remove them, or move them to a MachineConfig of another pool", loser.flags)
			}
			remark("warning: MachineConfig %q: %s: its drop-in %s of %s starts the kubelet by %q: the drop-in %s of MachineConfig %q wins in the pool %s, as in OpenShift%s",
				loser.config, loser.at, loser.name, ignition.KubeletUnit, strings.Join(loser.wrapper, " "), loser.by.name, loser.by.config, pools[i].Name, flags)
		}
		applies, worker := appliesTo[pools[i].Name], wrapperDropin{}
		if parent := parentOf(&pools[i], pools); parent != nil {
			worker = appliesTo[parent.Name]
		}
		switch {
		case slices.Equal(applies.wrapper, worker.wrapper):
		case applies.wrapper == nil:
			pools[i].Spec.Kubelet.Wrapper = []string{noWrapper}
			remark("note: MachineConfigPool %q: it does not start the kubelet by the command of worker: spec.kubelet.wrapper is [%s], which starts it directly",
				pools[i].Name, noWrapper)
		default:
			pools[i].Spec.Kubelet.Wrapper = applies.wrapper
			remark("note: MachineConfig %q: %s: ExecStart of the drop-in %s of %s becomes spec.kubelet.wrapper of the pool %s. "+
				"The container runtime must start in the same namespace: hosts with containerd need a drop-in for it", applies.config, applies.at, applies.name, ignition.KubeletUnit, pools[i].Name)
		}
	}
}

// takeCommands removes the commands that start the kubelet in a mount namespace from the drop-ins of MachineConfigs.
func takeCommands(configs []poolv1.MachineConfig, pools []poolv1.MachineConfigPool, remark func(string, ...any)) {
	setsFlags := findExtraArgs(configs)
	for i := range configs {
		name := configs[i].Name
		editDropins(&configs[i], func(at, unit, dropin, contents string) string {
			taken := takeWrapper(contents)
			if unit != ignition.KubeletUnit || taken.wrapper == nil {
				return contents
			}
			this := describeDropin(name, dropin)
			if taken.flags != "" {
				for _, other := range setsFlags {
					remark("warning: MachineConfig %q: %s: the flags in ExecStart of its drop-in %s of %s become KUBELET_EXTRA_ARGS, which %s sets too, "+
						"and hosts with both use one of them: merge them", name, at, dropin, unit, strings.Replace(other, this, "the drop-in", 1))
				}
			}
			for _, setting := range taken.doubted {
				remark("warning: MachineConfig %q: %s: %s of its drop-in %s of %s is kept: remove it if it only reads the kubelet's original command, which is not necessary here",
					name, at, setting, dropin, unit)
			}
			isSelected := func(p poolv1.MachineConfigPool) bool { return pool.Selects(p, configs[i].Labels) }
			if !slices.ContainsFunc(pools, isSelected) {
				remark("warning: MachineConfig %q: %s: no pool of the files selects it, and ExecStart of its drop-in %s of %s is left out: "+
					"set spec.kubelet.wrapper: [%s] in the pools that will select it", name, at, dropin, unit, strings.Join(taken.wrapper, ", "))
			}
			return taken.rest()
		})
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
// MachineConfigs are in the order of their names.
func renderedBy(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (names []string) {
	for _, of := range []*poolv1.MachineConfigPool{parentOf(p, pools), p} {
		for i := range configs {
			if of != nil && pool.Selects(*of, configs[i].Labels) && !slices.Contains(names, configs[i].Name) {
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
