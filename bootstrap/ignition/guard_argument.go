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
	"systemd.set-credential", "systemd.set-credential-binary",
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
	if path.Ext(value) == "" {
		value += path.Ext(KubeletUnit) // systemd.mask takes kubelet for kubelet.service
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
