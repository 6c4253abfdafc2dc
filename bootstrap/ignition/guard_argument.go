package ignition

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// reservedArgument is a kernel argument, or a pattern for several, that is refused.
type reservedArgument struct {
	// pattern is a key in which a star matches any ending. With a value, only that value is reserved. As in systemd, _
	// equals -.
	pattern string
	// effect is the effect of the argument.
	effect string
}

// Effects of reserved arguments.
const (
	changesHostname   = "would change the host's name"
	changesConfig     = "would give Ignition another configuration"
	changesBootTarget = "would change what the host boots into"
	masksUnit         = "would mask a unit that joins the host"
	mountsFileSystem  = "would mount a file system over files that the host joins with"
	setsEnvironment   = "would be in systemd's environment, which can set other unit directories"
	hasUnknownEffect  = "is a setting of systemd that is not known to leave units and files unchanged"
)

// reservedArguments are the kernel arguments that set the host's name, give Ignition another configuration, or change
// which units systemd runs.
var reservedArguments = []reservedArgument{
	{"hostname", changesHostname}, {"systemd.hostname", changesHostname},
	{"ignition.*", changesConfig}, {"flatcar.first-boot", changesConfig}, {"flatcar.config.url", changesConfig},
	{"init", changesBootTarget}, {"rdinit", changesBootTarget}, {"systemd.unit", changesBootTarget}, {"systemd.run", changesBootTarget},
	{"systemd.mask=" + KubeletUnit, masksUnit}, {"systemd.mask=" + OwnUnitPrefix + "*", masksUnit},
	{"systemd.mount-extra", mountsFileSystem}, {"systemd.swap-extra", mountsFileSystem},
	{"rescue", changesBootTarget}, {"emergency", changesBootTarget}, {"single", changesBootTarget},
	{"SYSTEMD-*", setsEnvironment}, {"LD-*", setsEnvironment}, // the kernel passes these to systemd
	{"--", changesBootTarget}, // what follows are arguments of systemd itself, such as --unit=rescue.target
}

// bootTargetArguments are kernel arguments without a value that make systemd boot into another target (manual page
// systemd(1), version 252). With a value they are not systemd's. 2 to 5 are not listed: their targets start the kubelet
// too.
var bootTargetArguments = []string{"1", "s", "S", "-s", "-b", "rd.rescue", "rd.emergency"}

// allowedArguments are the kernel arguments of systemd that change no unit and no file. All others are refused. With
// the prefix rd. they apply to the initial file system.
var allowedArguments = []string{
	"systemd.unified-cgroup-hierarchy", "systemd.legacy-systemd-cgroup-controller", "systemd.log-*", "systemd.show-status", "systemd.status-unit-format",
	"systemd.journald.*", "systemd.crash-*", "systemd.dump-core", "systemd.service-watchdogs", "systemd.watchdog-*", "systemd.default-*", "systemd.setenv",
	"systemd.cpu-affinity", "systemd.gpt-auto", "systemd.swap", "systemd.hibernate", "systemd.random-seed", "systemd.clock-usec", "systemd.firstboot",
	"systemd.allow-userspace-verity", "systemd.tpm2-*", "systemd.zram", "systemd.mask", "systemd.wants", "systemd.debug-shell", "systemd.machine-id",
}

// GuardArguments refuses a user's kernel arguments that would change what Guard protects. It returns nil or a
// *GuardError with paths kernelArguments[…].
func GuardArguments(arguments []string) error {
	g := guard{}
	g.checkArguments("kernelArguments", arguments)
	return g.err()
}

// checkArguments checks kernel arguments. One string can contain several.
func (g *guard) checkArguments(list string, arguments []string) {
	// The next argument can close open quotes, and systemd's versions differ in how they treat backslashes. In both
	// cases split at all blanks.
	isPlain := !slices.ContainsFunc(arguments, func(argument string) bool {
		_, _, closed := splitWords(argument, 0)
		return !closed || strings.Contains(argument, `\`)
	})
	for i, argument := range arguments {
		place := fmt.Sprintf("%s[%d]", list, i)
		if reserved, effect := findReservedArgument(argument, isPlain); effect != "" {
			g.refuse(place, "the kernel argument %s %s: leave it out", reserved, effect)
			continue
		}
		if strings.ContainsFunc(argument, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			g.refuse(place, "the kernel argument %q has the end of a line or another control character: write each argument on its own, without it", argument)
			continue
		}
		g.checkText(place, "kernel argument", []byte(argument))
	}
}

// kernelQuoting removes quotes and backslashes, and replaces what the kernel treats as a blank.
var kernelQuoting = strings.NewReplacer(`"`, "", "'", "", `\`, "", "\xa0", " ")

// findReservedArgument returns the first reserved kernel argument in a string, and its effect. If isPlain, blanks in
// quotes are part of a word, as in systemd. The kernel, which passes what follows -- to init, knows only double quotes
// and treats the byte 0xA0 as a blank (next_arg and isspace in its lib/), so -- is refused anywhere.
func findReservedArgument(arguments string, isPlain bool) (reserved, effect string) {
	split := strings.Fields(kernelQuoting.Replace(arguments))
	for _, argument := range split {
		if effect := effectOf(argument); effect != "" {
			return argument, effect
		}
	}
	if isPlain {
		split, _, _ = splitWords(arguments, 0)
	}
	for _, word := range split {
		if slices.Contains(bootTargetArguments, word) {
			return word, changesBootTarget
		}
	}
	return "", ""
}

// effectOf returns the effect of a reserved kernel argument, or "" for any other.
func effectOf(argument string) string {
	key, value, _ := strings.Cut(argument, "=")
	key = strings.ReplaceAll(key, "_", "-")
	if strings.HasPrefix(key, "rd.systemd.") {
		key = strings.TrimPrefix(key, "rd.")
	}
	if path.Ext(value) == "" {
		value += path.Ext(KubeletUnit) // systemd.mask=kubelet masks kubelet.service
	}
	for _, reserved := range reservedArguments {
		reservedKey, reservedValue, hasValue := strings.Cut(reserved.pattern, "=")
		keyFits, _ := path.Match(reservedKey, key)
		valueFits, _ := path.Match(reservedValue, value)
		if keyFits && (!hasValue || valueFits) {
			return reserved.effect
		}
	}
	if strings.HasPrefix(key, "systemd.") && !slices.ContainsFunc(allowedArguments, func(allowed string) bool {
		fits, _ := path.Match(allowed, key)
		return fits
	}) {
		return hasUnknownEffect
	}
	return ""
}

func toStrings[T ~string](arguments []T) []string {
	texts := make([]string, len(arguments))
	for i, argument := range arguments {
		texts[i] = string(argument)
	}
	return texts
}
