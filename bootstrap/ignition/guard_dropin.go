package ignition

import (
	"path"
	"slices"
	"strings"
)

// allowedDirectives are what a drop-in of the kubelet's unit may say: when it starts and ends, with what resources and
// in which environment. All else could give it another command, or other files than those that were checked. The star
// stands for anything.
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

// allowedForEvery are what a drop-in of every service may say, which Poolboot's check of the host is one of.
var allowedForEvery = []string{
	"Description", "Documentation", "StartLimit*", "Environment", "Restart*", "Timeout*", "Watchdog*", "Kill*", "SendSIG*", "FinalKillSignal",
	"Slice", "CPU*", "Memory*", "IO*", "BlockIO*", "Tasks*", "Limit*", "OOM*", "Nice", "NUMA*", "Allowed*", "Startup*", "Managed*", "IPA*",
	"TimerSlackNSec", "CoredumpFilter", "UMask", "Syslog*", "Log*", "IgnoreSIGPIPE",
}

// isForEvery says whether drop-ins are those of all units of a type of which Poolboot has some.
func isForEvery(unitName string) bool { return unitName == "service" || unitName == "path" }

// kubeletDropin refuses a drop-in that would take the pool's flags from the kubelet, or keep Poolboot's check from
// running.
func (g *guard) kubeletDropin(place, unitName, what, contents string) bool {
	allowed := allowedDirectives
	if isForEvery(unitName) {
		allowed = allowedForEvery
	}
	for _, directive := range directivesOf(contents) {
		file := strings.TrimPrefix(directive.value, "-")
		where, ok := g.ways.resolve(file)
		switch {
		case strings.HasPrefix(directive.name, "X-"):
		case directive.name == "Alias":
			g.refuse(place, "%s: Alias would give the kubelet's unit another name, with drop-ins of its own: remove the line", what)
			return true
		case !slices.ContainsFunc(allowed, directive.is):
			g.refuse(place, "%s: %s is not among the settings that can't take the Node out of its pool: "+
				"set what it is for in a kubelet configuration in %s, or in a unit of your own", what, directive.name, KubeletConfigDirectory)
			return true
		case directive.name == "EnvironmentFile" && file == "",
			directive.name == "UnsetEnvironment" && unsetsReserved(directive.value):
			g.refuse(place, "%s: %s=%s would drop %s: remove the line", what, directive.name, directive.value, KubeletEnvPath)
			return true
		case directive.name == "EnvironmentFile" && (!ok || !holdsEnvironment(cleaned(where)) || strings.Contains(file, "%")):
			g.refuse(place, "%s: EnvironmentFile=%s is not looked at for what is Poolboot's: put it into %s, or give it a name that ends in .env",
				what, file, environmentDirectories[0])
			return true
		}
	}
	return false
}

// unsetsReserved says whether names of variables, or assignments, are some that the kubelet's unit takes its flags
// from.
func unsetsReserved(value string) bool {
	names, _, ok := words(value, 0)
	return !ok || slices.ContainsFunc(names, func(name string) bool {
		name, _, _ = strings.Cut(name, "=")
		return slices.ContainsFunc(reservedVariables, func(variable string) bool { return couldBe(name, variable) })
	})
}

// against refuses a unit, or a drop-in, that would take the name of a unit that Poolboot relies on, stop it, or write
// over what it reads. Other units may do with themselves what they like.
func (g *guard) against(place, unitName, what, contents string) bool {
	if !slices.ContainsFunc([]string{"Alias", "Conflicts", "StopTo", "ServiceName", "Standard", "Symlinks", "Credential"},
		func(word string) bool { return strings.Contains(contents, word) }) {
		return false
	}
	for _, directive := range directivesOf(contents) {
		why := ""
		switch directive.name {
		case "Alias", "ServiceName":
			if name := namesOwn(directive.value); name != "" {
				why = "it can't have the name " + name + ", which is Poolboot's"
			}
		case "Conflicts", "PropagatesStopTo", "StopPropagatedFrom":
			if name := namesOwn(directive.value); name != "" {
				why = directive.name + " would stop " + name + ", without which the host never joins"
			}
		case "StandardOutput", "StandardError", "Symlinks":
			if name := g.writesKept(directive.value); name != "" {
				why = directive.name + " would write to " + name + ", which is Poolboot's"
			}
		case "SetCredential", "SetCredentialEncrypted", "LoadCredential", "LoadCredentialEncrypted", "ImportCredential":
			id, _, _ := strings.Cut(directive.value, ":")
			if strings.HasPrefix(unitName, "systemd-") && strings.ContainsAny(id, `.%\*?["'`) {
				why = directive.name + "=" + id + " hands systemd what it obeys, as lines of tmpfiles.d, and which can't be checked"
			}
		}
		if why != "" {
			g.refuse(place, "%s: %s: remove the line with %s", what, why, directive.name)
			return true
		}
	}
	return false
}

// namesOwn is the unit that Poolboot relies on which a list of units names; "" for none.
func namesOwn(value string) string {
	decoded, _, _ := words(value, 0)
	for _, name := range append(strings.Fields(value), decoded...) {
		name = strings.Trim(name, `"'`)
		if path.Ext(name) == "" {
			name += path.Ext(KubeletUnit) // which Quadlet adds
		}
		if isOwn(name) {
			return name
		}
		for _, own := range append([]string{KubeletUnit}, ownUnits...) {
			if couldBe(name, own) {
				return own
			}
		}
	}
	return ""
}

// writesKept is the file of Poolboot's that a setting names, as file:, append:, truncate: or by its path alone; "" for
// none.
func (g *guard) writesKept(value string) string {
	paths, _, ok := words(value, 0)
	if !ok {
		paths = strings.Fields(value)
	}
	for _, name := range paths {
		for _, kind := range []string{"file:", "append:", "truncate:"} {
			name = strings.TrimPrefix(name, kind)
		}
		literal, isPattern := beforePattern(specified(name))
		if !path.IsAbs(literal) {
			continue
		}
		at, ok := g.ways.resolve(literal)
		if !ok || isOutside(at) || !isPattern && isKept(at) {
			return name
		}
		if isPattern && g.reachedBelow(at, partBefore(specified(name))) != "" {
			return name
		}
	}
	return ""
}
