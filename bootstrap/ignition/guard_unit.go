package ignition

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

func (g *guard) checkUnits(units []types.Unit) {
	for i, unit := range units {
		place := item("systemd.units", i)
		switch {
		case strings.Contains(unit.Name, "/"):
			g.refuse(place+".name", "%s: the name of a unit must not contain a slash", unit.Name)
			continue
		case isOwnUnit(unit.Name):
			g.refuseOwn(place+".name", unit.Name)
			continue
		case unit.Name == KubeletUnit && unit.Mask != nil && *unit.Mask:
			g.refuse(place+".mask", "without %s the host never joins: leave it out", unit.Name)
		}
		if unit.Contents != nil && *unit.Contents != "" {
			g.checkUnit(place+".contents", unit.Name, *unit.Contents)
			g.checkInstall(place+".contents", unit.Name, unit.Name, *unit.Contents)
		}
		for j, dropin := range unit.Dropins {
			place := fmt.Sprintf("%s.dropins[%d]", place, j)
			switch {
			case strings.Contains(dropin.Name, "/"):
				g.refuse(place+".name", "%s: the name of a drop-in must not contain a slash", dropin.Name)
			case unit.Name == KubeletUnit && g.isOfPool(dropin):
			case unit.Name == KubeletUnit && isReservedDropin(dropin.Name):
				g.refuseDropin(place+".name", dropin.Name)
			case dropin.Contents != nil:
				g.checkDropin(place+".contents", unit.Name, dropin.Name, *dropin.Contents)
				g.checkInstall(place+".contents", unit.Name, fmt.Sprintf("drop-in %s of %s", dropin.Name, unit.Name), *dropin.Contents)
			}
		}
	}
}

// checkUnit checks the contents of a unit.
func (g *guard) checkUnit(place, name, contents string) {
	switch {
	case isOwnUnit(name):
		g.refuseOwn(place, name)
	case !isUnitFile(contents):
		g.refuse(place, "%s: %s", name, noUnitFile)
	case name == KubeletUnit:
		g.refuse(place, "%s is reserved for Poolboot: use a drop-in without ExecStart, a kubelet configuration in %s, or "+
			"spec.kubelet.wrapper of the MachineConfigPool for a command that starts the kubelet", name, KubeletConfigDirectory)
	default:
		g.checkText(place, name, []byte(contents))
	}
}

// checkDropin checks a drop-in of a unit.
func (g *guard) checkDropin(place, unitName, name, contents string) {
	what := fmt.Sprintf("drop-in %s of %s", name, unitName)
	switch {
	case isOwnUnit(unitName):
		g.refuseOwn(place, unitName)
	case unitName == KubeletUnit && isReservedDropin(name):
		g.refuseDropin(place, name)
	case !isUnitFile(contents):
		g.refuse(place, "%s: %s", what, noUnitFile)
	case appliesToKubelet(unitName) && slices.ContainsFunc(directivesOf(contents), func(d directive) bool { return d.name == "ExecStart" }):
		g.refuse(place, "%s: ExecStart would start the kubelet without the flags that put its Node into its pool: to start it through a command, "+
			"such as nsenter for a mount namespace, set spec.kubelet.wrapper of the MachineConfigPool, and remove the line and those that only serve it", what)
	default:
		g.checkText(place, what, []byte(contents))
	}
}

func (g *guard) refuseOwn(place, name string) {
	g.refuse(place, "%s is reserved for Poolboot: use a name that does not start with %s", name, OwnUnitPrefix)
}

// isReservedDropin reports whether a drop-in of the kubelet's unit would replace that of Poolboot or of the image.
func isReservedDropin(name string) bool {
	return name == kubeadmDropin || name == OwnDropin || name == WrapperDropin || name == ReservedDropin
}

func (g *guard) refuseDropin(place, name string) {
	whose := "that of Poolboot, which checks the host before it joins"
	switch name {
	case kubeadmDropin:
		whose = "that of the image, which passes the pool's flags to the kubelet"
	case ReservedDropin:
		whose = "that of Poolboot with spec.kubelet.autoSizingReserved of the MachineConfigPool"
	case WrapperDropin:
		whose = "that of Poolboot with spec.kubelet.wrapper of the MachineConfigPool"
	}
	g.refuse(place, "%s would replace %s: use another name", name, whose)
}

// isOwnUnit reports whether a unit belongs to Poolboot.
func isOwnUnit(unitName string) bool { return strings.HasPrefix(unitName, OwnUnitPrefix) }

// appliesToKubelet reports whether the drop-ins of a unit apply to the kubelet: systemd reads service.d for every
// service.
func appliesToKubelet(unitName string) bool {
	return unitName == KubeletUnit || unitName == strings.TrimPrefix(path.Ext(KubeletUnit), ".")
}

// isDropinDirectory reports whether a path is a directory of drop-ins for the kubelet or a unit of Poolboot.
func isDropinDirectory(name string) bool {
	unitName, isDropins := strings.CutSuffix(path.Base(name), ".d")
	return isDropins && slices.Contains(UnitDirectories, path.Dir(name)) && (appliesToKubelet(unitName) || isOwnUnit(unitName))
}

// ofPools match the drop-ins of the kubelet's unit that a pool renders. The command of the wrapper must end with that
// of the kubelet and all of its variables: without them, the Node would be outside its pool.
var ofPools = map[string]*regexp.Regexp{
	WrapperDropin: regexp.MustCompile(`^\[Service\]\nEnvironment=` + KubeletCommandVariable + `=[A-Za-z0-9_./-]+\nExecStart=\n` +
		`ExecStart=(/(?:[A-Za-z0-9_./:=@,+-]+ )+)` + regexp.QuoteMeta(WrappedKubelet) + `\n$`),
	ReservedDropin: regexp.MustCompile(`^\[Service\]\nExecStartPre=/bin/sh ` + regexp.QuoteMeta(ReservedScriptPath) + `(?: [A-Za-z0-9_./-]+)*\n$`),
}

// isOfPool reports whether a drop-in of the kubelet's unit is one that a pool renders, in a rendered config.
func (g *guard) isOfPool(dropin types.Dropin) bool {
	pattern, has := ofPools[dropin.Name]
	if !g.Rendered || !has || dropin.Contents == nil {
		return false
	}
	match := pattern.FindStringSubmatch(*dropin.Contents)
	return match != nil && (dropin.Name != WrapperDropin || GuardWrapper(strings.Fields(match[1])) == nil)
}

// GuardWrapper is Guard for the words of a kubelet wrapper, which systemd starts with the kubelet's own command after
// them. It refuses another kubelet, which could read this command as values of its flags, flags that identify the Node,
// variables with such flags, and commands that change the host's name. As with units, it does not check what the
// program of the wrapper does. It returns nil or a *GuardError.
func GuardWrapper(words []string) error {
	g := &guard{}
	for i, word := range words {
		if path.Base(word) == strings.TrimSuffix(KubeletUnit, path.Ext(KubeletUnit)) {
			g.refuse(fmt.Sprintf("[%d]", i), "%s: the kubelet's own command is added to the wrapper: leave it and its flags out, and set spec.kubelet.configuration", word)
			return g.err()
		}
		if before := len(g.refusals); before == 0 {
			g.checkText(fmt.Sprintf("[%d]", i), "the wrapper of the kubelet", []byte(word))
		}
	}
	if len(g.refusals) == 0 {
		g.checkText("", "the wrapper of the kubelet", []byte(strings.Join(words, " ")))
	}
	return g.err()
}
