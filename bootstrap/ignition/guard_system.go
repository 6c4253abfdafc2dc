package ignition

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

const (
	// fstab lists file systems to mount.
	fstab = "/etc/fstab"
	// ignitionPreset is the name of the preset file with the units that Ignition enables. Of all preset files, the
	// first by name with an entry for a unit applies.
	ignitionPreset = "20-ignition.preset"
)

// generatorDirectories contain programs that generate units, or the environment of all units, before systemd reads
// units.
var generatorDirectories = []string{
	"/etc/systemd/system-generators", "/run/systemd/system-generators",
	"/usr/lib/systemd/system-generators", "/usr/local/lib/systemd/system-generators",
	"/etc/systemd/system-environment-generators", "/run/systemd/system-environment-generators",
	"/usr/lib/systemd/system-environment-generators", "/usr/local/lib/systemd/system-environment-generators",
}

func isGenerator(name string) bool { return slices.Contains(generatorDirectories, path.Dir(name)) }

// isPreset reports whether a file defines which units systemd enables at the first boot.
func isPreset(name string) bool {
	return path.Ext(name) == ".preset" && path.Base(path.Dir(name)) == "system-preset"
}

// isTmpfiles reports whether a file defines which files systemd creates or removes at every boot.
func isTmpfiles(name string) bool {
	return path.Ext(name) == ".conf" && path.Base(path.Dir(name)) == "tmpfiles.d"
}

// isManagerConfig reports whether a file is the configuration of systemd itself.
func isManagerConfig(name string) bool {
	if path.Base(path.Dir(name)) == "system.conf.d" {
		name = path.Dir(name)
	}
	return strings.HasSuffix(name, "/systemd/system.conf") || strings.HasSuffix(name, "/systemd/system.conf.d")
}

// checkManagerConfig checks the configuration of systemd: its environment can set other unit directories.
func (g *guard) checkManagerConfig(place, name, text string) {
	for _, directive := range directivesOf(text) {
		if directive.name == "ManagerEnvironment" {
			g.refuse(place, "%s: ManagerEnvironment can make systemd read other units: use DefaultEnvironment, which applies to services", name)
			return
		}
	}
	g.checkText(place, name, []byte(text))
}

// isUnit reports whether a path is that of a unit or a drop-in.
func isUnit(name string) bool { unit, _ := unitAt(name); return unit != "" }

// isUnitDirectory reports whether systemd reads units from a directory or from one above it.
func isUnitDirectory(name string) bool {
	return isIn(name, UnitDirectories...)
}

// credentialDirectories contain credentials that systemd's own services read by name.
var credentialDirectories = []string{"/etc/credstore", "/run/credstore", "/usr/lib/credstore", "/usr/local/lib/credstore"}

// isSystemCredential reports whether a file is a credential that systemd's own services can read. The names of these
// have a dot, for example tmpfiles.extra, which contains lines of tmpfiles.d.
func isSystemCredential(name string) bool {
	directory := strings.TrimSuffix(path.Dir(name), ".encrypted")
	return slices.Contains(credentialDirectories, directory) && strings.Contains(path.Base(name), ".") || strings.Contains(name, "/loader/credentials/")
}

// quadletDirectories contain descriptions of containers, from which a generator creates units.
var quadletDirectories = []string{"/etc/containers/systemd", "/usr/share/containers/systemd", "/run/containers/systemd"}

// quadletUnit returns the unit that is generated from a description of containers, and the drop-in if the file is one.
// It returns "" for other files.
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

// refuseUncheckedPath refuses an entry at a path from which systemd takes settings that can't be checked.
func (g *guard) refuseUncheckedPath(place, name string) bool {
	switch {
	case isGenerator(name):
		g.refuse(place, "%s is a generator, and the units that it generates can't be checked: define the units under systemd.units", name)
	case isSystemCredential(name):
		g.refuse(place, "%s is a credential from which systemd's own services can read settings, such as lines of tmpfiles.d or drop-ins: use a name without a dot", name)
	case strings.Contains(name, "/confexts/"), strings.Contains(name, "/extensions.mutable/"):
		g.refuse(place, "%s is merged over /etc or /usr, where it hides files of Poolboot: define the files at their own paths", name)
	case strings.Contains(name, "/loader/entries/"):
		g.refuse(place, "%s contains kernel arguments, which would not be checked: use kernelArguments", name)
	case isAlternativePath(name):
		g.refuse(place, "%s is not a regular path of the host's files: use the file's own path", name)
	default:
		return false
	}
	return true
}

// checkPreset checks a file that defines which units are enabled.
func (g *guard) checkPreset(place, name string, data []byte) {
	if path.Base(name) > ignitionPreset {
		return // the entries of ignitionPreset apply
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
			if disables || strings.ContainsAny(fields[1], `[\`) { // for which the patterns of systemd differ from those of Go
				g.refuse(place, "%s line %d: without %s the host never joins: remove %q, or give the file a name that sorts after %s", name, number, unit,
					strings.Join(fields, " "), ignitionPreset)
				return
			}
		}
	}
}
