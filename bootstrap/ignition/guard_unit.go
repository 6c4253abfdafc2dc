package ignition

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

func (g *guard) units(units []types.Unit) {
	for i, unit := range units {
		place := fmt.Sprintf("systemd.units[%d]", i)
		if isOwn(unit.Name) {
			g.refuseOwn(place+".name", unit.Name)
			continue
		}
		if unit.Name == KubeletUnit && unit.Mask != nil && *unit.Mask {
			g.refuse(place+".mask", "without %s the host never joins: leave it out", unit.Name)
		}
		if unit.Contents != nil && *unit.Contents != "" {
			g.unit(place+".contents", unit.Name, *unit.Contents)
		}
		for j, dropin := range unit.Dropins {
			if dropin.Contents != nil {
				g.dropin(fmt.Sprintf("%s.dropins[%d].contents", place, j), unit.Name, dropin.Name, *dropin.Contents)
			}
		}
	}
}

// unit checks the contents of a unit.
func (g *guard) unit(place, name, contents string) {
	switch {
	case isOwn(name):
		g.refuseOwn(place, name)
	case name == KubeletUnit:
		g.refuse(place, "%s is Poolboot's: use a drop-in without ExecStart, or a kubelet configuration in %s",
			name, KubeletConfigDirectory)
	default:
		g.text(place, name, []byte(contents))
	}
}

// dropin checks a drop-in of a unit.
func (g *guard) dropin(place, unitName, name, contents string) {
	what := fmt.Sprintf("drop-in %s of %s", name, unitName)
	if isOwn(unitName) {
		g.refuseOwn(place, unitName)
		return
	}
	if appliesToKubelet(unitName) {
		options, err := unit.DeserializeOptions(strings.NewReader(contents))
		if err != nil {
			g.refuse(place, "%s: %v", what, err)
			return
		}
		for _, option := range options {
			switch {
			case option.Section != "Service":
			case option.Name == "ExecStart":
				g.refuse(place, "%s: ExecStart would drop the flags that put the Node in its pool: "+
					"set what it is for in a kubelet configuration in %s", what, KubeletConfigDirectory)
				return
			case option.Name == "EnvironmentFile" && option.Value == "",
				option.Name == "UnsetEnvironment" && strings.Contains(option.Value, KubeletArgsVariable):
				g.refuse(place, "%s: %s=%s would drop %s: remove the line", what, option.Name, option.Value, KubeletEnvPath)
				return
			}
		}
	}
	g.text(place, what, []byte(contents))
}

func (g *guard) refuseOwn(place, name string) {
	g.refuse(place, "%s is Poolboot's: give your unit a name that does not start with %s", name, OwnUnitPrefix)
}

// isOwn says whether a unit is one of Poolboot's own.
func isOwn(unitName string) bool { return strings.HasPrefix(unitName, OwnUnitPrefix) }

// appliesToKubelet says whether the drop-ins of a unit are also the kubelet's: systemd reads service.d for every service.
func appliesToKubelet(unitName string) bool {
	return unitName == KubeletUnit || unitName == strings.TrimPrefix(path.Ext(KubeletUnit), ".")
}

// isDropinDirectory says whether a path is a directory of drop-ins that are read for the kubelet or a unit of Poolboot's.
func isDropinDirectory(name string) bool {
	unitName, isDropins := strings.CutSuffix(path.Base(name), ".d")
	return isDropins && slices.Contains(unitDirectories, path.Dir(name)) && (appliesToKubelet(unitName) || isOwn(unitName))
}
