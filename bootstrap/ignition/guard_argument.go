package ignition

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// reservedArgument is a kernel argument, or a pattern of some, that is refused.
type reservedArgument struct {
	// pattern has a star for any ending. Where it has a value, only that one is reserved. As for systemd, _ is -.
	pattern string
	// does says what the argument would do.
	does string
}

// What reserved arguments do.
const (
	namesHost     = "would change the host's name"
	configures    = "would bring Ignition another configuration"
	bootsElse     = "would change what the host boots into"
	masks         = "would keep a unit from starting that joins the host"
	mounts        = "would mount something over what the host joins with"
	isEnvironment = "would be in systemd's environment, which can name other directories of units"
	isUnknown     = "is not among those of systemd that are known to change no unit and no file"
)

// reservedArguments are the kernel arguments that name the host, bring Ignition another configuration, or have systemd
// run something else than the units on the disk.
var reservedArguments = []reservedArgument{
	{"hostname", namesHost}, {"systemd.hostname", namesHost},
	{"ignition.*", configures}, {"flatcar.first-boot", configures}, {"flatcar.config.url", configures},
	{"init", bootsElse}, {"rdinit", bootsElse}, {"systemd.unit", bootsElse}, {"systemd.run", bootsElse},
	{"systemd.mask=" + KubeletUnit, masks}, {"systemd.mask=" + OwnUnitPrefix + "*", masks},
	{"systemd.mount-extra", mounts}, {"systemd.swap-extra", mounts},
	{"rescue", bootsElse}, {"emergency", bootsElse}, {"single", bootsElse},
	{"SYSTEMD-*", isEnvironment}, {"LD-*", isEnvironment}, // the kernel hands these to systemd
	{"--", bootsElse}, // and what follows this, as arguments of systemd itself: --unit=rescue.target for one
}

// targetWords are kernel arguments without a value by which systemd (its manual page systemd(1), version 252) boots
// into another target than the one on the disk; with a value they are somebody else's. 2 to 5 are left out: their
// targets start the kubelet too.
var targetWords = []string{"1", "s", "S", "-s", "-b", "rd.rescue", "rd.emergency"}

// allowedArguments are the kernel arguments for systemd that change no unit and no file; all others are refused. rd.
// before one is for the initial file system.
var allowedArguments = []string{
	"systemd.unified-cgroup-hierarchy", "systemd.legacy-systemd-cgroup-controller", "systemd.log-*", "systemd.show-status", "systemd.status-unit-format",
	"systemd.journald.*", "systemd.crash-*", "systemd.dump-core", "systemd.service-watchdogs", "systemd.watchdog-*", "systemd.default-*", "systemd.setenv",
	"systemd.cpu-affinity", "systemd.gpt-auto", "systemd.swap", "systemd.hibernate", "systemd.random-seed", "systemd.clock-usec", "systemd.firstboot",
	"systemd.allow-userspace-verity", "systemd.tpm2-*", "systemd.zram", "systemd.mask", "systemd.wants", "systemd.debug-shell", "systemd.machine-id",
}

// GuardArguments refuses kernel arguments of a user that would take over what Guard keeps. It returns nil or a
// *GuardError whose paths are kernelArguments[…].
func GuardArguments(arguments []string) error {
	g := guard{}
	g.arguments("kernelArguments", arguments)
	return g.err()
}

// arguments checks kernel arguments, of which one string may hold several.
func (g *guard) arguments(list string, arguments []string) {
	// The next argument may end quotes that are open, and systemd's versions differ about backslashes: then all blanks
	// count.
	isPlain := !slices.ContainsFunc(arguments, func(argument string) bool {
		_, _, closed := words(argument, 0)
		return !closed || strings.Contains(argument, `\`)
	})
	for i, argument := range arguments {
		place := fmt.Sprintf("%s[%d]", list, i)
		if taken, does := reservedIn(argument, isPlain); does != "" {
			g.refuse(place, "the kernel argument %s %s: leave it out", taken, does)
			continue
		}
		g.text(place, "kernel argument", []byte(argument))
	}
}

// reservedIn returns the first reserved one of the kernel arguments in a string, and what it would do. Blanks in quotes
// are part of a word that isPlain, as for systemd. The kernel, which hands init what follows --, knows double quotes
// only, and the byte 0xA0 is a blank for it (next_arg and isspace in its lib/), so -- counts wherever it is.
func reservedIn(arguments string, isPlain bool) (taken, does string) {
	split := strings.Fields(strings.NewReplacer(`"`, "", "'", "", `\`, "", "\xa0", " ").Replace(arguments))
	for _, argument := range split {
		if does := reserves(argument); does != "" {
			return argument, does
		}
	}
	if isPlain {
		split, _, _ = words(arguments, 0)
	}
	for _, word := range split {
		if slices.Contains(targetWords, word) {
			return word, bootsElse
		}
	}
	return "", ""
}

// reserves says what one kernel argument would do that is reserved, "" for one that is not.
func reserves(argument string) string {
	key, value, _ := strings.Cut(argument, "=")
	key = strings.ReplaceAll(key, "_", "-")
	if strings.HasPrefix(key, "rd.systemd.") {
		key = strings.TrimPrefix(key, "rd.")
	}
	if path.Ext(value) == "" {
		value += path.Ext(KubeletUnit) // systemd.mask takes kubelet for kubelet.service
	}
	for _, reserved := range reservedArguments {
		reservedKey, reservedValue, hasValue := strings.Cut(reserved.pattern, "=")
		keyFits, _ := path.Match(reservedKey, key)
		valueFits, _ := path.Match(reservedValue, value)
		if keyFits && (!hasValue || valueFits) {
			return reserved.does
		}
	}
	if strings.HasPrefix(key, "systemd.") && !slices.ContainsFunc(allowedArguments, func(allowed string) bool {
		fits, _ := path.Match(allowed, key)
		return fits
	}) {
		return isUnknown
	}
	return ""
}

func textsOf[T ~string](arguments []T) []string {
	texts := make([]string, len(arguments))
	for i, argument := range arguments {
		texts[i] = string(argument)
	}
	return texts
}
