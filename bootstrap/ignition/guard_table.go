package ignition

import (
	"encoding/base64"
	"path"
	"strconv"
	"strings"
)

// fstabLine is one line of fstab, without escapes.
type fstabLine struct {
	number                     int
	what, where, kind, options string
}

// fstabLines reads fstab as the C library does: fields at white space, with \040 for what is none.
func fstabLines(text string) (lines []fstabLine) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		fields = append(fields, "", "")
		for i := range fields {
			fields[i] = withoutOctal(fields[i])
		}
		lines = append(lines, fstabLine{number: number, what: fields[0], where: strings.Trim(fields[1], `"'`), kind: fields[2], options: fields[3]})
	}
	return lines
}

// withoutOctal undoes escapes of three octal digits.
func withoutOctal(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// isBind says whether a line makes one directory appear at another place.
func (l fstabLine) isBind() bool { return isBind(l.kind, l.options) }

func isBind(kind, options string) bool {
	if kind == "bind" || kind == "rbind" || kind == "none" {
		return true
	}
	for option := range strings.SplitSeq(options, ",") {
		switch strings.TrimSpace(option) {
		case "bind", "rbind", "move", "rmove":
			return true
		}
	}
	return false
}

// bindSource is the directory that a mount unit makes appear at its mount point; "" for one that mounts a device.
func bindSource(contents string) string {
	var what, kind, options string
	for _, directive := range directivesOf(contents) {
		switch directive.name {
		case "What":
			what = specified(directive.value)
		case "Type":
			kind = directive.value
		case "Options":
			options = directive.value
		}
	}
	if !isBind(kind, options) {
		return ""
	}
	return what
}

// tmpfilesLine is one line of a file of tmpfiles.d, without quotes, escapes and those specifiers whose value is known.
type tmpfilesLine struct {
	number       int
	kind         byte   // the letter of the type
	modifiers    string // what comes behind that
	path, age    string
	argument     string
	isMisspelled bool // by a quote or an escape, and systemd leaves the line out
}

// tmpfilesLines reads them as systemd-tmpfiles does.
func tmpfilesLines(text string) (lines []tmpfilesLine) {
	number := 0
	for raw := range strings.Lines(text) {
		number++
		raw = strings.TrimSpace(raw)
		if raw == "" || strings.HasPrefix(raw, "#") {
			continue
		}
		fields, argument, ok := words(raw, 6)
		line := tmpfilesLine{number: number, isMisspelled: !ok}
		if !ok {
			lines = append(lines, line)
			continue
		}
		if len(fields) < 2 || fields[0] == "" {
			continue
		}
		line.kind, line.modifiers = fields[0][0], fields[0][1:]
		line.path = specified(fields[1])
		if len(fields) > 5 && fields[5] != "-" {
			line.age = fields[5]
		}
		if argument != "-" {
			line.argument = specified(strings.Trim(argument, `"'`))
		}
		lines = append(lines, line)
	}
	return lines
}

// fstab checks what is mounted.
func (g *guard) fstab(place, name, text string) {
	for _, line := range fstabLines(text) {
		if line.where == "none" || line.where == "swap" {
			continue
		}
		if where, ok := g.ways.mountedAt(line.where); !ok || hidesReserved(where) {
			g.refuse(place, "%s line %d: a mount at %s would hide what Poolboot writes there: mount it somewhere else", name, line.number, described(line.where, where))
			return
		}
	}
	g.text(place, name, []byte(text))
}

// Of the types of tmpfiles.d these leave what is in a directory as it is, if they have no age; and these do nothing at
// all.
const (
	tmpfilesKeeping = "dvqQezmath"
	tmpfilesIdle    = "xX"
)

// tmpfiles checks what systemd makes, changes or removes at every boot.
func (g *guard) tmpfiles(place, name, text string) {
	for _, line := range tmpfilesLines(text) {
		if why := g.tmpfilesLine(line); why != "" {
			g.refuse(place, "%s line %d: %s", name, line.number, why)
			return
		}
	}
	g.text(place, name, []byte(text))
}

const cureTmpfiles = "remove the line, or name another path"

// tmpfilesLine says why a line is refused. What no pattern stands for is looked at where it leads; of a pattern, what
// may be below the directory in which it begins.
func (g *guard) tmpfilesLine(line tmpfilesLine) string {
	if line.isMisspelled {
		return "a quote does not end, or an escape is none: systemd would leave the line out"
	}
	if strings.IndexByte(tmpfilesIdle, line.kind) >= 0 {
		return ""
	}
	literal, isPattern := beforePattern(line.path)
	if !path.IsAbs(line.path) && !strings.HasPrefix(line.path, anything) {
		return "" // systemd leaves it out
	}
	at, ok := g.ways.resolve(literal)
	parent, parentOK := g.ways.resolve(path.Dir(path.Clean(literal)))
	switch {
	case !ok || !parentOK:
		return line.path + " goes round in links: " + cureTmpfiles
	case isPattern && strings.Contains(line.path, ".."):
		return line.path + " is a pattern with .. in it, which can't be checked: write the path out"
	case isPattern:
		if where := g.reachedBelow(at, partBefore(line.path)); where != "" {
			return line.path + " may stand for " + where + ", which is Poolboot's: write the path out"
		}
		return g.tmpfilesArgument(line, at)
	}
	// systemd follows links on the way, and for most types at its end.
	itself := path.Join(parent, path.Base(literal))
	if why := tmpfilesPath(line, itself); why != "" {
		return why
	}
	if line.kind != 'L' {
		if why := tmpfilesPath(line, at); why != "" {
			return why
		}
	}
	return g.tmpfilesArgument(line, itself)
}

// tmpfilesPath says why a line is refused that is about a path.
func tmpfilesPath(line tmpfilesLine, at string) string {
	keeps := strings.IndexByte(tmpfilesKeeping, line.kind) >= 0 && line.age == ""
	switch {
	case isKept(at):
		return described(line.path, at) + " is Poolboot's: " + cureTmpfiles
	case isOutside(at):
		return described(line.path, at) + " is another way to what is Poolboot's, and can't be checked: name the path itself"
	case !keeps && (leadsToReserved(at) || at == "/"):
		return described(line.path, at) + " holds what is Poolboot's, and a line of type " + string(line.kind) + " would change all that is in it: " + cureTmpfiles
	case !keeps && (isGenerator(at) || isTmpfiles(at) || at == fstab || isPreset(at) || isUnit(at)):
		return described(line.path, at) + " is obeyed by systemd, and what it would hold can't be checked: write it as a file or under systemd.units"
	}
	return ""
}

// tmpfilesArgument says why what a line writes is refused.
func (g *guard) tmpfilesArgument(line tmpfilesLine, at string) string {
	switch {
	case strings.Contains(line.modifiers, "^"):
		return "what comes from a credential can't be checked: write it into the line"
	case strings.Contains(line.modifiers, "~"):
		data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line.argument))
		if err != nil {
			return "its argument is no base64, as the modifier ~ says"
		}
		hidden := guard{left: g.left}
		hidden.text("", at, data)
		if len(hidden.refused) > 0 {
			return hidden.refused[0].Why
		}
	case line.kind == 'L' && isEnvironmentOfKubelet(at):
		return at + " may be read by the kubelet, and where a link leads can't be checked: make it a file"
	}
	return ""
}

// beforePattern is what comes before the part of a path that is a pattern. systemd-tmpfiles takes *, ?, [ and {.
func beforePattern(name string) (literal string, isPattern bool) {
	first := strings.IndexAny(name, "*?[{\\"+anything)
	if first < 0 {
		return name, false
	}
	return name[:strings.LastIndexByte(name[:first], '/')+1], true
}

// partBefore is the begin of the first part of a path that is a pattern.
func partBefore(name string) string {
	first := strings.IndexAny(name, "*?[{\\"+anything)
	return name[strings.LastIndexByte(name[:first], '/')+1 : first]
}

// reachedBelow is a path below a directory that is kept, by itself or over a link, and whose next part has a begin; ""
// if there is none.
func (g *guard) reachedBelow(directory, begin string) string {
	fits := func(name string) bool {
		return isBelow(name, directory) && strings.HasPrefix(strings.TrimPrefix(name[len(strings.TrimSuffix(directory, "/")):], "/"), begin)
	}
	if isKept(path.Join(directory, "a")) || isUnitDirectory(directory) {
		return directory
	}
	for name := range keptPaths {
		if fits(name) {
			return name
		}
	}
	for from := range g.ways {
		if !fits(from) {
			continue
		}
		if at, ok := g.ways.resolve(from); !ok || isKept(at) || leadsToReserved(at) || at == "/" {
			return from
		}
	}
	return ""
}

// described names a path and, if it is another, where it leads.
func described(name, at string) string {
	if path.Clean(name) == at {
		return at
	}
	return path.Clean(name) + ", which leads to " + at + ","
}
