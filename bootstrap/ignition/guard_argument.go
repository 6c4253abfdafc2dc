package ignition

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// reservedArgument is a kernel argument, or a pattern for several, that is refused.
type reservedArgument struct {
	// pattern is a key or a key and a value. A star at its end matches any ending. As in systemd, _ equals -.
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
)

// reservedArguments are the kernel arguments that set the host's name, give Ignition another configuration, or change
// which units systemd runs.
var reservedArguments = []reservedArgument{
	{"hostname", changesHostname}, {"systemd.hostname", changesHostname},
	{"ignition.*", changesConfig}, {"flatcar.first-boot", changesConfig}, {"flatcar.config.url", changesConfig},
	{"init", changesBootTarget}, {"rdinit", changesBootTarget}, {"systemd.unit", changesBootTarget}, {"systemd.run", changesBootTarget},
	{"systemd.mask=" + KubeletUnit, masksUnit}, {"systemd.mask=" + OwnUnitPrefix + "*", masksUnit},
	{"systemd.mount-extra", mountsFileSystem}, {"systemd.swap-extra", mountsFileSystem}, {"systemd.volatile", mountsFileSystem},
	{"rescue", changesBootTarget}, {"emergency", changesBootTarget}, {"single", changesBootTarget},
	{"--", changesBootTarget}, // what follows are arguments of systemd itself, such as --unit=rescue.target
}

// bootTargetArguments are kernel arguments without a value that make systemd boot into another target (manual page
// systemd(1), version 252). With a value they are not systemd's. 2 to 5 are not listed: their targets start the kubelet
// too.
var bootTargetArguments = []string{"1", "s", "S", "-s", "-b", "rd.rescue", "rd.emergency"}

// GuardArguments refuses a user's kernel arguments that would change what Guard protects. It returns nil or a
// *GuardError with paths kernelArguments[…].
func GuardArguments(arguments []string) error {
	g := guard{}
	g.checkArguments("kernelArguments", arguments)
	return g.err()
}

// checkArguments checks kernel arguments. One string can contain several.
func (g *guard) checkArguments(list string, arguments []string) {
	for i, argument := range arguments {
		place := item(list, i)
		if reserved, effect := findReservedArgument(argument); effect != "" {
			g.refuse(place, "the kernel argument %s %s: leave it out", reserved, effect)
			continue
		}
		if strings.ContainsFunc(argument, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			g.refuse(place, "the kernel argument %q has the end of a line or another control character: write each argument on its own, without it", argument)
			continue
		}
		if hasStrayBlank(argument) {
			g.refuse(place, "the kernel argument %q has a blank at its end or beside =, which ends an argument: remove the blank", argument)
			continue
		}
		g.checkText(place, "kernel argument", []byte(argument))
	}
}

// hasStrayBlank reports whether a string with arguments begins or ends with a blank, or has one beside the = of an
// argument.
func hasStrayBlank(arguments string) bool {
	parts := SplitArguments([]string{arguments})
	return strings.TrimSpace(arguments) != arguments || slices.ContainsFunc(parts, func(part string) bool { return part[0] == '=' }) ||
		slices.ContainsFunc(parts[:max(len(parts)-1, 0)], func(part string) bool { return strings.HasSuffix(part, "=") })
}

// argumentQuotes removes quotes.
var argumentQuotes = strings.NewReplacer(`"`, "", "'", "")

// findReservedArgument returns the first reserved kernel argument in a string, and its effect. A single letter or digit
// in quotes is part of a value.
func findReservedArgument(arguments string) (reserved, effect string) {
	plain := argumentQuotes.Replace(arguments)
	for _, argument := range strings.Fields(plain) {
		if effect := effectOf(argument); effect != "" {
			return argument, effect
		}
		if plain == arguments && slices.Contains(bootTargetArguments, argument) {
			return argument, changesBootTarget
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
		plain, hasValue := key, strings.Contains(reserved.pattern, "=")
		if hasValue {
			plain += "=" + value
		}
		start, matchesAll := strings.CutSuffix(reserved.pattern, "*")
		if plain == start || matchesAll && strings.HasPrefix(plain, start) {
			return reserved.effect
		}
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

// argumentPattern matches one argument of a kernel command line. It has no space outside of quotes.
var argumentPattern = regexp.MustCompile(`(?:[^\s"]|"[^"]*"?)+`)

// SplitArguments returns the single arguments of a kernel command line with these parts: it is split at spaces outside
// of quotes.
func SplitArguments(parts []string) []string {
	return argumentPattern.FindAllString(strings.Join(parts, " "), -1)
}
