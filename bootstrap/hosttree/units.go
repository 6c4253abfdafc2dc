package hosttree

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	// UnitDirectory has the units and drop-ins that Ignition writes.
	UnitDirectory = ignition.UnitDirectory
	// PresetPath is the file in which Ignition enables and disables units.
	PresetPath = ignition.PresetPath
)

// addUnits adds units and drop-ins, masks, and the presets that enable and disable units.
func (t Tree) addUnits(units []types.Unit) {
	for _, unit := range units {
		for _, dropin := range unit.Dropins {
			if dropin.Contents != nil {
				t[path.Join(UnitDirectory, unit.Name+".d", dropin.Name)] = newUnitFile(*dropin.Contents)
			}
		}
		file := path.Join(UnitDirectory, unit.Name)
		contents := ptr.Deref(unit.Contents, "")
		switch {
		case ptr.Deref(unit.Mask, false):
			t[file] = Entry{Type: Link, Target: MaskTarget}
		case contents != "":
			t[file] = newUnitFile(contents)
		case unit.Mask != nil:
			t[file] = Entry{Type: Unmasked}
		}
	}
	if presets := Presets(units); presets != "" {
		file := newUnitFile(presets)
		file.Replaces = false // it is Ignition's own file
		t[PresetPath] = file
	}
}

// newUnitFile returns the file of a unit. Ignition replaces what is there, such as the link of an alias.
func newUnitFile(contents string) Entry {
	return Entry{Type: File, Mode: ptr.To(fileMode), UID: ptr.To(0), GID: ptr.To(0), Contents: []byte(contents), Replaces: true}
}

// UnitOf returns the unit that a path is the file or a drop-in of, "" if it is neither.
func UnitOf(name string) string {
	directory, base := path.Split(name)
	if directory = path.Clean(directory); directory == UnitDirectory {
		return base
	}
	if unit, isDropIn := strings.CutSuffix(path.Base(directory), ".d"); isDropIn && path.Dir(directory) == UnitDirectory {
		return unit
	}
	return ""
}

// TemplateOf returns the name of the template of an instance, "" for other units.
func TemplateOf(unit string) string {
	if at, dot := strings.Index(unit, "@"), strings.LastIndex(unit, "."); at >= 0 && dot > at+1 {
		return unit[:at+1] + unit[dot:]
	}
	return ""
}

// Presets returns the contents of the preset file, in the order in which Ignition writes the lines. Ignition leaves out
// the line that disables a unit which the image does not enable.
func Presets(units []types.Unit) string {
	verbs := map[bool]string{true: "enable ", false: "disable "}
	presets := map[string][]string{}
	for _, unit := range units {
		if unit.Enabled == nil {
			continue
		}
		name, instances := unit.Name, []string(nil)
		if at, dot := strings.Index(name, "@"), strings.LastIndex(name, "."); at >= 0 && dot > at {
			name, instances = name[:at+1]+name[dot:], []string{name[at+1 : dot]}
		}
		key := name + map[bool]string{true: "-enabled", false: "-disabled"}[*unit.Enabled]
		if presets[key] == nil {
			presets[key] = []string{verbs[*unit.Enabled] + name}
		}
		presets[key] = append(presets[key], instances...)
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(presets)) {
		text.WriteString(strings.Join(presets[key], " ") + "\n")
	}
	return text.String()
}
