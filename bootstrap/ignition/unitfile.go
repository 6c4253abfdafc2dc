package ignition

import (
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// directive is one setting of a unit: Name=value.
type directive struct {
	section     string // without brackets
	name, value string
	line        int // where it begins, counted from 1
}

// unitBlanks are the blanks that systemd removes around lines, names and values.
const unitBlanks = " \t\n\r"

// directivesOf parses the directives of all sections of a unit as systemd does (config_parse in its conf-parser.c): a
// backslash that is not escaped continues a line, but not a comment, and an empty line ends what is continued.
// Libraries differ from systemd here.
func directivesOf(contents string) (directives []directive) {
	section, begin, number := "", 0, 0
	add := func(text string) {
		text = strings.Trim(text, unitBlanks)
		if inner, isHeader := strings.CutPrefix(text, "["); isHeader {
			section = strings.TrimSuffix(inner, "]")
		} else if name, value, isDirective := strings.Cut(text, "="); isDirective {
			directives = append(directives, directive{section, strings.Trim(name, unitBlanks), strings.Trim(value, unitBlanks), begin})
		}
	}
	var continued strings.Builder // the lines before, if they are continued
	for line := range unitLines(strings.TrimPrefix(contents, "\ufeff")) {
		number++
		line = strings.TrimLeft(line, unitBlanks)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if continued.Len() == 0 {
			begin = number
		}
		if part := strings.TrimRight(line, `\`); (len(line)-len(part))%2 == 1 {
			continued.WriteString(line[:len(line)-1] + " ")
			continue
		}
		if continued.Len() > 0 {
			continued.WriteString(line)
			line = continued.String()
			continued.Reset()
		}
		add(line)
	}
	add(continued.String())
	return directives
}

// noUnitFile is why the contents of a unit or drop-in are refused.
const noUnitFile = "it has no section, so systemd ignores all of it: begin it with a line such as [Service] or [Unit]"

// isUnitFile reports whether a text has a section of a unit, or nothing but comments.
func isUnitFile(contents string) bool {
	isEmpty := true
	for line := range unitLines(strings.TrimPrefix(contents, "\ufeff")) {
		switch line = strings.Trim(line, unitBlanks); {
		case strings.HasPrefix(line, "["):
			return true
		case line != "" && line[0] != '#' && line[0] != ';':
			isEmpty = false
		}
	}
	return isEmpty
}

// unitSections are the sections of units that systemd knows, beside those that begin with X-.
var unitSections = []string{"Unit", "Install", "Service", "Socket", "Mount", "Automount", "Swap", "Timer", "Path", "Slice", "Scope"}

// CheckUnits returns a warning for each section of a unit or drop-in that systemd ignores, and for each unit that is
// enabled, with contents by which nothing starts it.
func CheckUnits(c Config) (warnings []Problem) {
	for i, unit := range c.Systemd.Units {
		checkSections := func(path, contents string) {
			for _, section := range sectionsOf(contents) {
				if !slices.Contains(unitSections, section) && !strings.HasPrefix(section, "X-") {
					addProblem(&warnings, func() Problem {
						return Problem{Path: path + ".contents", Message: fmt.Sprintf("systemd ignores the section [%s], which it does not know: correct its name, such as [Service], or begin it with X-", section)}
					})
				}
			}
		}
		contents := ptr.Deref(unit.Contents, "")
		checkSections(item("systemd.units", i), contents)
		all := contents
		for j, dropin := range unit.Dropins {
			checkSections(item(item("systemd.units", i)+".dropins", j), ptr.Deref(dropin.Contents, ""))
			all += "\n" + ptr.Deref(dropin.Contents, "")
		}
		isEnabled := ptr.Deref(unit.Enabled, false) && !ptr.Deref(unit.Mask, false) && contents != ""
		if isEnabled && !slices.ContainsFunc(directivesOf(all), func(d directive) bool { return d.section == "Install" }) {
			addProblem(&warnings, func() Problem {
				return Problem{Path: item("systemd.units", i) + ".enabled", Message: unit.Name + " has no section [Install], so nothing starts it: " +
					"add one, such as [Install] with WantedBy=multi-user.target, or leave out enabled if another unit starts it"}
			})
		}
	}
	return LimitProblems(warnings)
}

// sectionsOf returns the sections of a unit that have directives, each once.
func sectionsOf(contents string) (sections []string) {
	for _, d := range directivesOf(contents) {
		if d.section != "" && !slices.Contains(sections, d.section) {
			sections = append(sections, d.section)
		}
	}
	return sections
}

// unitLines yields the lines of a text as systemd splits it (read_line in its fileio.c): a line ends with a NUL, a line
// feed, a carriage return, or several that differ, of which the NUL is the last.
func unitLines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(text) > 0 {
			end := strings.IndexAny(text, "\n\r\x00")
			if end < 0 {
				yield(text)
				return
			}
			next := end + 1
			for ; next < len(text) && text[next-1] != 0; next++ {
				if strings.IndexByte("\n\r\x00", text[next]) < 0 || strings.IndexByte(text[end:next], text[next]) >= 0 {
					break
				}
			}
			if !yield(text[:end]) {
				return
			}
			text = text[next:]
		}
	}
}

// maxUnitName is the maximum length of the name of a unit, in bytes.
const maxUnitName = 255

// unitTypes are the types of units, with the dot.
var unitTypes = []string{".service", ".socket", ".target", ".device", ".mount", ".automount", ".swap", ".timer", ".path", ".slice", ".scope"}

// isUnitName reports whether systemd accepts a name of a unit, an instance or a template.
func isUnitName(name string) bool {
	kind := path.Ext(name)
	stem := strings.TrimSuffix(name, kind)
	return len(name) <= maxUnitName && slices.Contains(unitTypes, kind) && stem != "" && stem[0] != '@' && isInstanceName(stem)
}

// isInstanceName reports whether systemd accepts the name of an instance.
func isInstanceName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(`:-_.\@`, r)
	})
}

// splitUnitName returns the parts of the name of a unit. Only an instance has an instance, and only an instance and a
// template have an @.
func splitUnitName(name string) (prefix, instance, kind string, hasAt bool) {
	kind = path.Ext(name)
	prefix, instance, hasAt = strings.Cut(strings.TrimSuffix(name, kind), "@")
	return prefix, instance, kind, hasAt
}
