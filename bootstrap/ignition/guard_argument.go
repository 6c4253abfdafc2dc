package ignition

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// reservedArguments are the kernel arguments that name the host, bring Ignition another configuration, or have systemd run
// something else than the units on the disk. The star stands for any ending; where there is a value, only that one is
// reserved. As for systemd, _ is -.
var reservedArguments = []string{
	"hostname", "systemd.hostname",
	"ignition.*", "flatcar.first-boot", "flatcar.config.url",
	"init", "rdinit", "systemd.unit", "systemd.run", "systemd.mask=" + KubeletUnit, "systemd.mask=" + OwnUnitPrefix + "*",
	"systemd.mount-extra", "systemd.swap-extra", "rescue", "emergency", "single",
	"SYSTEMD-*", "LD-*", // the kernel hands these to systemd as its environment, SYSTEMD_UNIT_PATH among them
}

// allowedArguments are the kernel arguments for systemd that change no unit and no file; all others are refused. rd. before one is for
// the initial file system.
var allowedArguments = []string{
	"systemd.unified-cgroup-hierarchy", "systemd.legacy-systemd-cgroup-controller", "systemd.log-*", "systemd.show-status", "systemd.status-unit-format",
	"systemd.journald.*", "systemd.crash-*", "systemd.dump-core", "systemd.service-watchdogs", "systemd.watchdog-*", "systemd.default-*", "systemd.setenv",
	"systemd.cpu-affinity", "systemd.gpt-auto", "systemd.swap", "systemd.hibernate", "systemd.random-seed", "systemd.clock-usec", "systemd.firstboot",
	"systemd.allow-userspace-verity", "systemd.tpm2-*", "systemd.zram", "systemd.mask", "systemd.wants", "systemd.debug-shell", "systemd.machine-id",
}

// GuardArguments refuses kernel arguments of a user that would take over what Guard keeps. It returns nil or a *GuardError
// whose paths are kernelArguments[…].
func GuardArguments(arguments []string) error {
	g := guard{}
	g.arguments("kernelArguments", arguments)
	return g.err()
}

// arguments checks kernel arguments, of which one string may hold several.
func (g *guard) arguments(list string, arguments []string) {
	for i, argument := range arguments {
		place := fmt.Sprintf("%s[%d]", list, i)
		plain := strings.NewReplacer(`"`, "", "'", "").Replace(argument)
		if taken := slices.IndexFunc(strings.Fields(plain), isReservedArgument); taken >= 0 {
			g.refuse(place, "the kernel argument %s would change the host's name, its configuration or what it boots into: "+
				"leave it out", strings.Fields(plain)[taken])
			continue
		}
		g.text(place, "kernel argument", []byte(argument))
	}
}

// isReservedArgument says whether one kernel argument is reserved.
func isReservedArgument(argument string) bool {
	key, value, _ := strings.Cut(argument, "=")
	key = strings.ReplaceAll(key, "_", "-")
	if strings.HasPrefix(key, "rd.systemd.") {
		key = strings.TrimPrefix(key, "rd.")
	}
	if path.Ext(value) == "" {
		value += path.Ext(KubeletUnit) // systemd.mask takes kubelet for kubelet.service
	}
	if strings.HasPrefix(key, "systemd.") && !slices.ContainsFunc(allowedArguments, func(allowed string) bool {
		fits, _ := path.Match(allowed, key)
		return fits
	}) {
		return true
	}
	return slices.ContainsFunc(reservedArguments, func(reserved string) bool {
		reservedKey, reservedValue, hasValue := strings.Cut(reserved, "=")
		keyFits, _ := path.Match(reservedKey, key)
		valueFits, _ := path.Match(reservedValue, value)
		return keyFits && (!hasValue || valueFits)
	})
}

func textsOf[T ~string](arguments []T) []string {
	texts := make([]string, len(arguments))
	for i, argument := range arguments {
		texts[i] = string(argument)
	}
	return texts
}
