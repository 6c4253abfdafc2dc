package ignition

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

const (
	// fstab lists what is mounted.
	fstab = "/etc/fstab"
	// ignitionPreset is the name of the file by which Ignition has systemd enable units. Of the files of the preset
	// directories the first by name that speaks of a unit decides.
	ignitionPreset = "20-ignition.preset"
)

// generatorDirectories hold programs that make units, or environments of all units, before systemd reads any.
var generatorDirectories = []string{
	"/etc/systemd/system-generators", "/run/systemd/system-generators",
	"/usr/lib/systemd/system-generators", "/usr/local/lib/systemd/system-generators",
	"/etc/systemd/system-environment-generators", "/run/systemd/system-environment-generators",
	"/usr/lib/systemd/system-environment-generators", "/usr/local/lib/systemd/system-environment-generators",
}

func isGenerator(name string) bool { return slices.Contains(generatorDirectories, path.Dir(name)) }

// isPreset says whether a file tells systemd which units to enable at the first boot.
func isPreset(name string) bool {
	return path.Ext(name) == ".preset" && path.Base(path.Dir(name)) == "system-preset"
}

// isTmpfiles says whether a file tells systemd which files to make or remove at every boot.
func isTmpfiles(name string) bool {
	return path.Ext(name) == ".conf" && path.Base(path.Dir(name)) == "tmpfiles.d"
}

// isManagerConfig says whether a file is systemd's own configuration.
func isManagerConfig(name string) bool {
	if path.Base(path.Dir(name)) == "system.conf.d" {
		name = path.Dir(name)
	}
	return strings.HasSuffix(name, "/systemd/system.conf") || strings.HasSuffix(name, "/systemd/system.conf.d")
}

// managerConfig checks it: the environment of systemd itself can name other directories of units.
func (g *guard) managerConfig(place, name, text string) {
	for _, directive := range directivesOf(text) {
		if directive.name == "ManagerEnvironment" {
			g.refuse(place, "%s: ManagerEnvironment may have systemd read other units: set DefaultEnvironment, which is for services", name)
			return
		}
	}
	g.text(place, name, []byte(text))
}

// isUnit says whether a path is a unit's, or a drop-in's.
func isUnit(name string) bool { unit, _ := unitAt(name); return unit != "" }

// isUnitDirectory says whether units are looked for in a directory, or in one below it.
func isUnitDirectory(name string) bool {
	return slices.Contains(unitDirectories, name) || slices.ContainsFunc(unitDirectories, func(of string) bool { return isBelow(name, of) })
}

// credentialDirectories hold credentials that systemd's own services take by their names.
var credentialDirectories = []string{"/etc/credstore", "/run/credstore", "/usr/lib/credstore", "/usr/local/lib/credstore"}

// isSystemCredential says whether a file is a credential that systemd's own services may take: all of theirs have a dot
// in their names, as tmpfiles.extra, which holds lines of tmpfiles.d.
func isSystemCredential(name string) bool {
	directory := strings.TrimSuffix(path.Dir(name), ".encrypted")
	return slices.Contains(credentialDirectories, directory) && strings.Contains(path.Base(name), ".") || strings.Contains(name, "/loader/credentials/")
}

// quadletDirectories hold descriptions of containers, of which a generator makes units.
var quadletDirectories = []string{"/etc/containers/systemd", "/usr/share/containers/systemd", "/run/containers/systemd"}

// quadletUnit is the unit that is made of a description of containers, and whether name is a drop-in of one; "" for
// other files.
func quadletUnit(name string) (unit, dropin string) {
	if !slices.ContainsFunc(quadletDirectories, func(directory string) bool { return isBelow(name, directory) }) {
		return "", ""
	}
	if of, isDropin := strings.CutSuffix(path.Base(path.Dir(name)), ".d"); isDropin {
		dropin, name = path.Base(name), of
	}
	kind := path.Ext(name)
	unit = strings.TrimSuffix(path.Base(name), kind)
	switch kind {
	case ".container", ".kube":
	case ".volume", ".network", ".pod", ".image", ".build":
		unit += "-" + kind[1:]
	default:
		return "", ""
	}
	return unit + path.Ext(KubeletUnit), dropin
}

// takenPath refuses an entry at a path by which systemd takes what nobody can check.
func (g *guard) takenPath(place, name string) bool {
	switch {
	case isGenerator(name):
		g.refuse(place, "%s is a generator, and what units it makes can't be checked: write the units under systemd.units", name)
	case isSystemCredential(name):
		g.refuse(place, "%s is a credential that systemd's own services may obey, as lines of tmpfiles.d or drop-ins: give yours a name without a dot", name)
	case strings.Contains(name, "/confexts/"), strings.Contains(name, "/extensions.mutable/"):
		g.refuse(place, "%s is laid over /etc or /usr, where it hides what Poolboot writes there: write its files themselves", name)
	case strings.Contains(name, "/loader/entries/"):
		g.refuse(place, "%s holds kernel arguments, which would not be checked: set kernelArguments", name)
	case isOutside(name):
		g.refuse(place, "%s is no file of the host's, or another way to one: name the path itself", name)
	default:
		return false
	}
	return true
}

// preset checks a file that says which units are enabled.
func (g *guard) preset(place, name string, data []byte) {
	if path.Base(name) > ignitionPreset {
		return // Ignition has decided before
	}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) < 2 || fields[0] != "disable" {
			continue
		}
		for _, unit := range []string{KubeletUnit, OwnUnitPrefix + "join.service", OwnUnitPrefix + "joined.path"} {
			disables, _ := path.Match(fields[1], unit)
			if disables || strings.ContainsAny(fields[1], `[\`) { // in which a shell's patterns differ from Go's
				g.refuse(place, "%s line %d: without %s the host never joins: remove %q, or give the file a name behind %s", name, number, unit,
					strings.Join(fields, " "), ignitionPreset)
				return
			}
		}
	}
}
