package ignition

import (
	"path"
	"slices"
	"strings"
)

// allowedDirectives are the settings that a drop-in of the kubelet's unit can have: when it starts and stops, its
// resources and its environment. Others could change its command, or make it read files that are not checked. A star
// matches anything.
var allowedDirectives = []string{
	"Description", "Documentation", "After", "Before", "Wants", "Requires", "Requisite", "BindsTo", "PartOf", "Upholds", "OnFailure*", "OnSuccess*",
	"StartLimit*", "Condition*", "Assert*", "RequiresMountsFor", "WantsMountsFor", "WantedBy", "RequiredBy", "UpheldBy", "Also", "Conflicts",
	"Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment",
	"ExecCondition", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost", "Type", "NotifyAccess", "Restart*", "Timeout*", "Watchdog*",
	"SuccessExitStatus", "Kill*", "SendSIG*", "FinalKillSignal", "RemainAfterExit",
	"Slice", "Delegate*", "CPU*", "Memory*", "IO*", "BlockIO*", "Tasks*", "Limit*", "OOM*", "Nice", "NUMA*", "Allowed*", "Startup*", "Managed*",
	"IPA*", "Device*", "TimerSlackNSec", "CoredumpFilter", "Personality", "UMask",
	"Standard*", "Syslog*", "Log*", "SELinuxContext", "AppArmorProfile", "Capability*", "AmbientCapabilities", "MountFlags", "IgnoreSIGPIPE",
}

// allowedForAllServices are the settings that a drop-in for all services can have. It also applies to Poolboot's check
// of the host.
var allowedForAllServices = []string{
	"Description", "Documentation", "StartLimit*", "Environment", "Restart*", "Timeout*", "Watchdog*", "Kill*", "SendSIG*", "FinalKillSignal",
	"Slice", "CPU*", "Memory*", "IO*", "BlockIO*", "Tasks*", "Limit*", "OOM*", "Nice", "NUMA*", "Allowed*", "Startup*", "Managed*", "IPA*",
	"TimerSlackNSec", "CoredumpFilter", "UMask", "Syslog*", "Log*", "IgnoreSIGPIPE",
}

// appliesToAllUnits reports whether drop-ins apply to all units of a type, and Poolboot has units of that type.
func appliesToAllUnits(unitName string) bool { return unitName == "service" || unitName == "path" }

// refuseKubeletDropin refuses a drop-in that would remove the pool's flags from the kubelet, or prevent Poolboot's
// check from running.
func (g *guard) refuseKubeletDropin(place, unitName, what, contents string) bool {
	allowed := allowedDirectives
	if appliesToAllUnits(unitName) {
		allowed = allowedForAllServices
	}
	directives := directivesOf(contents)
	// First, because a drop-in that starts the kubelet through a command has other lines that only serve this one.
	if unitName == KubeletUnit && slices.ContainsFunc(directives, func(d directive) bool { return d.name == "ExecStart" }) {
		g.refuse(place, "%s: ExecStart would start the kubelet without the flags that put its Node into its pool: to start it through a command, "+
			"such as nsenter for a mount namespace, set spec.kubelet.wrapper of the MachineConfigPool, and remove the line and those that only serve it", what)
		return true
	}
	for _, directive := range directives {
		file := strings.TrimPrefix(directive.value, "-")
		where, ok := "", false
		if directive.name == "EnvironmentFile" {
			where, ok = g.redirects.resolve(file)
		}
		switch {
		case strings.HasPrefix(directive.name, "X-"):
		case directive.name == "Alias":
			g.refuse(place, "%s: Alias would give the kubelet's unit another name, with its own drop-ins: remove the line", what)
			return true
		case !slices.ContainsFunc(allowed, directive.is):
			g.refuse(place, "%s: %s is not an allowed setting, because it could take the Node out of its pool: "+
				"use a kubelet configuration in %s, or a unit of your own", what, directive.name, KubeletConfigDirectory)
			return true
		case directive.name == "EnvironmentFile" && file == "",
			directive.name == "UnsetEnvironment" && unsetsReserved(directive.value):
			g.refuse(place, "%s: %s=%s would disable %s: remove the line", what, directive.name, directive.value, KubeletEnvPath)
			return true
		case directive.name == "EnvironmentFile" && (!ok || !isEnvironmentFile(cleanPath(where)) || strings.Contains(file, "%")):
			g.refuse(place, "%s: EnvironmentFile=%s is not checked for reserved settings: put the file into %s, or give it a name that ends in .env",
				what, file, environmentDirectories[0])
			return true
		}
	}
	return false
}

// unsetsReserved reports whether a list of variables or assignments contains a variable with flags of the kubelet's
// unit.
func unsetsReserved(value string) bool {
	names, _, ok := splitWords(value, 0)
	return !ok || slices.ContainsFunc(names, func(name string) bool {
		name, _, _ = strings.Cut(name, "=")
		return slices.ContainsFunc(reservedVariables, func(variable string) bool { return canBeNamed(name, variable) })
	})
}

// refuseDirectives refuses a unit or a drop-in that would take the name of a unit that Poolboot depends on, stop it, or
// overwrite files that it reads.
func (g *guard) refuseDirectives(place, unitName, what, contents string) bool {
	if !slices.ContainsFunc([]string{"Alias", "Conflicts", "StopTo", "ServiceName", "Standard", "Symlinks", "Credential"},
		func(word string) bool { return strings.Contains(contents, word) }) {
		return false
	}
	for _, directive := range directivesOf(contents) {
		why := ""
		switch directive.name {
		case "Alias", "ServiceName":
			if name := findOwnUnit(directive.value); name != "" {
				why = "the name " + name + " is reserved for Poolboot"
			}
		case "Conflicts", "PropagatesStopTo", "StopPropagatedFrom":
			if name := findOwnUnit(directive.value); name != "" {
				why = directive.name + " would stop " + name + ", without which the host never joins"
			}
		case "StandardOutput", "StandardError", "Symlinks":
			if name := g.findProtectedFile(directive.value); name != "" {
				why = directive.name + " would write to " + name + ", which is reserved for Poolboot"
			}
		case "SetCredential", "SetCredentialEncrypted", "LoadCredential", "LoadCredentialEncrypted", "ImportCredential":
			id, _, _ := strings.Cut(directive.value, ":")
			if strings.HasPrefix(unitName, "systemd-") && strings.ContainsAny(id, `.%\*?["'`) {
				why = directive.name + "=" + id + " passes settings to systemd, such as lines of tmpfiles.d, that can't be checked"
			}
		}
		if why != "" {
			g.refuse(place, "%s: %s: remove the line with %s", what, why, directive.name)
			return true
		}
	}
	return false
}

// findOwnUnit returns the first unit in a list of units that Poolboot depends on, or "".
func findOwnUnit(value string) string {
	decoded, _, _ := splitWords(value, 0)
	for _, name := range append(strings.Fields(value), decoded...) {
		name = strings.Trim(name, `"'`)
		if path.Ext(name) == "" {
			name += path.Ext(KubeletUnit) // as Quadlet does
		}
		if isOwnUnit(name) {
			return name
		}
		for _, own := range append([]string{KubeletUnit}, OwnUnits...) {
			if canBeNamed(name, own) {
				return own
			}
		}
	}
	return ""
}

// findProtectedFile returns the protected file that a setting names, with file:, append:, truncate: or only its path,
// or "".
func (g *guard) findProtectedFile(value string) string {
	paths, _, ok := splitWords(value, 0)
	if !ok {
		paths = strings.Fields(value)
	}
	for _, name := range paths {
		for _, kind := range []string{"file:", "append:", "truncate:"} {
			name = strings.TrimPrefix(name, kind)
		}
		literal, prefix, isPattern := cutPattern(expandSpecifiers(name))
		if !path.IsAbs(literal) {
			continue
		}
		at, ok := g.redirects.resolve(literal)
		if !ok || isAlternativePath(at) || !isPattern && isProtected(at) {
			return name
		}
		if isPattern && g.findProtectedBelow(at, prefix) != "" {
			return name
		}
	}
	return ""
}
