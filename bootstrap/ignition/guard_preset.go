package ignition

import (
	"bytes"
	"path"
	"strings"
)

// ignitionPreset is the name of the preset file with the units that Ignition enables. Of all preset files, the first by
// name with an entry for a unit applies.
const ignitionPreset = "20-ignition.preset"

// isPreset reports whether a file defines which units systemd enables at the first boot.
func isPreset(name string) bool {
	return path.Ext(name) == ".preset" && path.Base(path.Dir(name)) == "system-preset"
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
			if disables, _ := path.Match(fields[1], unit); disables {
				g.refuse(place, "%s line %d: without %s the host never joins: remove %q, or give the file a name that sorts after %s", name, number, unit,
					strings.Join(fields, " "), ignitionPreset)
				return
			}
		}
	}
}
