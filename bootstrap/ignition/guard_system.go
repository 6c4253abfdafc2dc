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

// preset checks a file that says which units are enabled.
func (g *guard) preset(place, name string, data []byte) {
	if path.Base(name) > ignitionPreset {
		return // Ignition has decided before
	}
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || fields[0] != "disable" {
			continue
		}
		for _, unit := range []string{KubeletUnit, OwnUnitPrefix + "join.service", OwnUnitPrefix + "joined.path"} {
			if disables, _ := path.Match(fields[1], unit); disables {
				g.refuse(place, "%s: without %s the host never joins: remove %q, or give the file a name behind %s", name, unit,
					strings.Join(fields, " "), ignitionPreset)
				return
			}
		}
	}
}

// table checks a file whose lines name a path in their second field: what is mounted there, made or removed.
func (g *guard) table(place, name string, data []byte) {
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		subject := cleaned(strings.Trim(fields[1], `"'`))
		unit, _ := unitAt(subject)
		switch {
		case name == fstab && hidesReserved(subject):
			g.refuse(place, "%s: a mount at %s would hide what Poolboot writes there: mount it somewhere else", name, subject)
			return
		case name != fstab && (cureFor(subject) != "" || appliesToKubelet(unit) || isOwn(unit) || isDropinDirectory(subject) ||
			isBelow(subject, KubeletConfigDirectory)):
			g.refuse(place, "%s: %s is Poolboot's: remove the line", name, subject)
			return
		}
	}
	g.text(place, name, data)
}
