package ignition

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
)

// Settings of the section Install.
const (
	SettingAlso            = "Also"
	SettingDefaultInstance = "DefaultInstance"
	settingAlias           = "Alias"
)

// installSettings are the settings of the section Install, with the type of the units that each usually names.
var installSettings = map[string]string{
	settingAlias: "", "WantedBy": ".target", "RequiredBy": ".target", "UpheldBy": ".target", SettingAlso: ".service", SettingDefaultInstance: "",
}

// aliasTypes are the types of units for which systemd does not ignore Alias.
var aliasTypes = []string{".service", ".socket", ".target", ".device", ".timer", ".path"}

// InstallValues returns the values of a setting of the section Install in the file and the drop-ins of a unit, without
// those that systemd refuses.
func InstallValues(unit types.Unit, setting string) (values []string) {
	for _, text := range contentsOf(unit) {
		if !hasInstall(ptr.Deref(text, "")) {
			continue
		}
		for _, d := range directivesOf(*text) {
			if d.section != "Install" || d.name != setting {
				continue
			}
			for _, value := range strings.Fields(d.value) {
				if expanded, ok := expandInstall(value, unit.Name); ok {
					values = append(values, expanded)
				}
			}
		}
	}
	return values
}

// contentsOf returns the contents of the file and the drop-ins of a unit. They can be nil.
func contentsOf(unit types.Unit) []*string {
	contents := []*string{unit.Contents}
	for _, dropin := range unit.Dropins {
		contents = append(contents, dropin.Contents)
	}
	return contents
}

// MountSources returns what a mount or swap unit names as the source of its file system, in its file and drop-ins.
func MountSources(unit types.Unit) (sources []string) {
	for _, text := range contentsOf(unit) {
		for _, d := range directivesOf(ptr.Deref(text, "")) {
			if d.name == "What" && (d.section == "Mount" || d.section == "Swap") {
				sources = append(sources, strings.Trim(d.value, `"'`))
			}
		}
	}
	return sources
}

// hasInstall reports whether contents can have a section Install.
func hasInstall(contents string) bool { return strings.Contains(contents, "[Install]") }

// checkInstall refuses a section Install with which systemctl fails to enable or disable a unit. If Also or
// DefaultInstance is malformed, systemd enables no unit at all at the first boot. It also refuses settings that systemd
// ignores, because they have no effect. The rules are those of install.c in systemd 252, tried with systemctl.
func (g *guard) checkInstall(place, unitName, what, contents string) {
	if !hasInstall(contents) {
		return
	}
	for _, d := range directivesOf(contents) {
		if d.section != "Install" || strings.HasPrefix(d.name, "X-") {
			continue
		}
		if why := checkInstallSetting(unitName, d); why != "" {
			g.refuse(place, "%s line %d: %s", what, d.line, why)
			return
		}
	}
}

// checkInstallSetting returns why a setting of the section Install is refused, or "".
func checkInstallSetting(unitName string, d directive) string {
	if _, exists := installSettings[d.name]; !exists {
		for name := range installSettings {
			if strings.EqualFold(name, d.name) {
				return fmt.Sprintf("systemd ignores %s: write %s", d.name, name)
			}
		}
		return fmt.Sprintf("systemd ignores %s in the section Install: remove the line, correct the name, or move it to its section", d.name)
	}
	prefix, _, kind, hasAt := splitUnitName(unitName)
	switch {
	case d.name == SettingDefaultInstance:
		if value, ok := expandInstall(d.value, unitName); hasAt && (!ok || !isInstanceName(value)) {
			return fmt.Sprintf("DefaultInstance=%s is not the name of an instance, and systemd could not enable any unit: use letters, digits and :-_.\\ only", d.value)
		}
		return ""
	case d.name == settingAlias && !slices.Contains(aliasTypes, kind):
		return "" // systemd ignores it
	}
	names := strings.Fields(d.value)
	if d.name != SettingAlso { // of which systemd does not remove quotes
		var isClosed bool
		if names, isClosed = unquotedFields(d.value); !isClosed {
			return fmt.Sprintf("a quote in %s is not closed, and systemd ignores the line: close it", d.name)
		}
	}
	for _, name := range names {
		expanded, ok := expandInstall(name, unitName)
		switch {
		case !ok:
			return fmt.Sprintf("%s=%s has a specifier that systemd does not have in the section Install: write the name itself", d.name, name)
		case d.name == settingAlias && strings.Contains(expanded, "/"):
			if !isDependencyLink(expanded, prefix, kind, unitName) {
				return fmt.Sprintf("Alias=%s is not the name of a unit: for a dependency set WantedBy or RequiredBy", name)
			}
		case !isUnitName(expanded):
			return fmt.Sprintf("%s=%s is not the name of a unit, and systemd could not enable this one: %s", d.name, name, nameRemedy(d.name, name, kind))
		case d.name == settingAlias:
			if why := checkAlias(expanded, unitName); why != "" {
				return fmt.Sprintf("Alias=%s: systemd could not enable this unit: %s", name, why)
			}
		}
	}
	return ""
}

// nameRemedy returns what to do about a malformed name of a unit in a setting of the section Install.
func nameRemedy(setting, name, ofKind string) string {
	kind := installSettings[setting]
	if kind == "" {
		kind = ofKind
	}
	switch plain := strings.Trim(name, `"',;`); {
	case strings.HasPrefix(name, "#"), strings.HasPrefix(name, ";"):
		return "move the comment to a line of its own"
	case strings.Trim(plain, ",;") != name && !strings.ContainsAny(plain, ",;") && isUnitName(plain):
		return "write " + plain
	case strings.ContainsAny(name, ",;"):
		return "separate names with blanks"
	case isUnitName(name + kind):
		return "write " + name + kind
	default:
		return "write a name as in " + setting + "=example" + kind
	}
}

// checkAlias returns why a valid name can't be an alias of a unit, and what to do, or "".
func checkAlias(alias, unitName string) string {
	_, instance, kind, hasAt := splitUnitName(unitName)
	_, ofAlias, kindOfAlias, aliasHasAt := splitUnitName(alias)
	switch {
	case kindOfAlias != kind:
		return "an alias has the same type: write " + strings.TrimSuffix(alias, kindOfAlias) + kind
	case hasAt && !aliasHasAt:
		return "an alias of a template or an instance has an @: write " + strings.TrimSuffix(alias, kind) + "@" + kind
	case !hasAt && aliasHasAt:
		return "only a template or an instance can have an alias with an @: remove it"
	case instance != "" && ofAlias != "" && ofAlias != instance:
		return "the alias of an instance has the same instance: write @" + instance
	}
	return ""
}

// isDependencyLink reports whether an alias is the path of a link by which another unit wants or requires this one.
func isDependencyLink(alias, prefix, kind, unitName string) bool {
	directory, base := path.Split(alias)
	directory = strings.TrimSuffix(directory, "/")
	of := strings.TrimSuffix(strings.TrimSuffix(directory, ".wants"), ".requires")
	ofBase, _, kindOfBase, hasAt := splitUnitName(base)
	return of != directory && isUnitName(of) && (base == unitName || hasAt && ofBase == prefix && kindOfBase == kind)
}

// specifier matches a specifier of systemd.
var specifier = regexp.MustCompile(`(?s)%.`)

// installSpecifiers are the specifiers of systemd 252 in the section Install.
const installSpecifiers = "aAbBgGHijlmMnNopquUvwW%"

// expandInstall replaces the specifiers of a value in the section Install: those for the name of the unit with their
// values, %% with %, and others with a letter, because a name can contain their values. It is not ok if systemd would
// refuse one.
func expandInstall(value, unitName string) (expanded string, ok bool) {
	if !strings.Contains(value, "%") {
		return value, true
	}
	prefix, instance, kind, _ := splitUnitName(unitName)
	if instance == "" {
		instance = "x" // of some instance
	}
	values := map[string]string{"n": unitName, "N": strings.TrimSuffix(unitName, kind), "p": prefix, "i": instance, "%": "%",
		"j": prefix[strings.LastIndexByte(prefix, '-')+1:]}
	ok = true
	expanded = specifier.ReplaceAllStringFunc(value, func(found string) string {
		if !strings.Contains(installSpecifiers, found[1:]) {
			ok = false
		}
		if known, isKnown := values[found[1:]]; isKnown {
			return known
		}
		return "x"
	})
	return expanded, ok
}

// unquotedFields splits a text at blanks as systemd does with quotes, but without escapes. It is not ok if a quote is
// not closed.
func unquotedFields(text string) (fields []string, ok bool) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, c := range text + " " {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && strings.ContainsRune(unitBlanks, c):
			if inWord {
				fields = append(fields, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	return fields, quote == 0
}

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
