package ignition

import (
	"encoding/base64"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fstabLine is one line of fstab, with escapes decoded.
type fstabLine struct {
	number                     int
	what, where, kind, options string
}

// fstabLines parses fstab as the C library does: fields are separated by white space, and \040 is a space in a field.
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
			fields[i] = unescapeOctal(fields[i])
		}
		lines = append(lines, fstabLine{number: number, what: fields[0], where: strings.Trim(fields[1], `"'`), kind: fields[2], options: fields[3]})
	}
	return lines
}

// octalEscape matches an escape of three octal digits.
var octalEscape = regexp.MustCompile(`\\[0-3][0-7]{2}`)

// unescapeOctal decodes escapes of three octal digits.
func unescapeOctal(text string) string {
	return octalEscape.ReplaceAllStringFunc(text, func(escape string) string {
		code, _ := strconv.ParseUint(escape[1:], 8, 8) // three octal digits up to 377
		return string([]byte{byte(code)})
	})
}

// isBind reports whether a mount of a type with some options is a bind mount.
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

// bindSource returns the source directory of a mount unit that is a bind mount, or "" for other mounts.
func bindSource(contents string) string {
	var what, kind, options string
	for _, directive := range directivesOf(contents) {
		switch directive.name {
		case "What":
			what = expandSpecifiers(directive.value)
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

// tmpfilesLine is one line of a file of tmpfiles.d, with quotes, escapes and known specifiers resolved.
type tmpfilesLine struct {
	number       int
	kind         byte   // the letter of the type
	modifiers    string // the characters after the letter
	path, age    string
	argument     string
	isMisspelled bool // a quote or an escape is malformed, and systemd ignores the line
}

// tmpfilesLines parses lines as systemd-tmpfiles does.
func tmpfilesLines(text string) (lines []tmpfilesLine) {
	number := 0
	for raw := range strings.Lines(text) {
		number++
		raw = strings.TrimSpace(raw)
		if raw == "" || strings.HasPrefix(raw, "#") {
			continue
		}
		fields, argument, ok := splitWords(raw, 6)
		line := tmpfilesLine{number: number, isMisspelled: !ok}
		if !ok {
			lines = append(lines, line)
			continue
		}
		if len(fields) < 2 || fields[0] == "" {
			continue
		}
		line.kind, line.modifiers = fields[0][0], fields[0][1:]
		line.path = expandSpecifiers(fields[1])
		if len(fields) > 5 && fields[5] != "-" {
			line.age = fields[5]
		}
		if argument != "-" {
			line.argument = expandSpecifiers(strings.Trim(argument, `"'`))
		}
		lines = append(lines, line)
	}
	return lines
}

// checkFstab checks the mounts of fstab.
func (g *guard) checkFstab(place, name, text string) {
	for _, line := range fstabLines(text) {
		g.redirects.followed = nil
		if g.redirects.isExhausted() {
			return
		}
		if line.where == "none" || line.where == "swap" {
			continue
		}
		if where, ok := g.redirects.resolveMount(line.where); !ok || hidesReserved(where) {
			g.refuse(place, "%s line %d: a mount at %s would hide files of Poolboot: mount it at another path", name, line.number, describePath(line.where, where))
			return
		}
	}
	g.checkText(place, name, []byte(text))
}

// Types of tmpfiles.d: without an age, those in tmpfilesKeeping do not change the contents of a directory. Those in
// tmpfilesIdle change nothing.
const (
	tmpfilesKeeping = "dvqQezmath"
	tmpfilesIdle    = "xX"
)

// checkTmpfiles checks what systemd creates, changes or removes at every boot.
func (g *guard) checkTmpfiles(place, name, text string) {
	for _, line := range tmpfilesLines(text) {
		g.redirects.followed = nil
		if g.redirects.isExhausted() {
			return
		}
		if why := g.checkTmpfilesLine(line); why != "" {
			g.refuse(place, "%s line %d: %s", name, line.number, why)
			return
		}
	}
	g.checkText(place, name, []byte(text))
}

const remedyTmpfiles = "remove the line, or use another path"

// checkTmpfilesLine returns why a line is refused, or "". A path is checked where it resolves to. A pattern is checked
// against all paths below the directory where it begins.
func (g *guard) checkTmpfilesLine(line tmpfilesLine) string {
	if line.isMisspelled {
		return "a quote is not closed, or an escape is invalid: correct it, because systemd would ignore the line"
	}
	if strings.IndexByte(tmpfilesIdle, line.kind) >= 0 {
		return ""
	}
	literal, prefix, isPattern := cutPattern(line.path)
	if !path.IsAbs(line.path) && !strings.HasPrefix(line.path, unknownValue) {
		return "" // systemd ignores it
	}
	at, ok := g.redirects.resolve(literal)
	parent, parentOK := g.redirects.resolve(path.Dir(path.Clean(literal)))
	switch {
	case !ok || !parentOK:
		return line.path + " is a loop of links: " + remedyTmpfiles
	case isPattern && strings.Contains(line.path, ".."):
		return line.path + " is a pattern with .., which can't be checked: use the full path"
	case isPattern:
		if where := g.findProtectedBelow(at, prefix); where != "" {
			return line.path + " can match " + where + ", which is reserved for Poolboot: use the full path"
		}
		return g.checkTmpfilesArgument(line, at)
	}
	// systemd follows links in the path and, for most types, at its end.
	itself := path.Join(parent, path.Base(literal))
	if why := checkTmpfilesPath(line, itself); why != "" {
		return why
	}
	if line.kind != 'L' {
		if why := checkTmpfilesPath(line, at); why != "" {
			return why
		}
	}
	return g.checkTmpfilesArgument(line, itself)
}

// checkTmpfilesPath returns why a line for a path is refused, or "".
func checkTmpfilesPath(line tmpfilesLine, at string) string {
	keeps := strings.IndexByte(tmpfilesKeeping, line.kind) >= 0 && line.age == ""
	switch {
	case isProtected(at):
		return describePath(line.path, at) + " is reserved for Poolboot: " + remedyTmpfiles
	case isAlternativePath(at):
		return describePath(line.path, at) + " is not a regular path of the host's files, and can't be checked: use the file's own path"
	case !keeps && (containsReserved(at) || at == "/"):
		return describePath(line.path, at) + " contains files of Poolboot, and a line of type " + string(line.kind) + " would change all of its contents: " + remedyTmpfiles
	case !keeps && (isGenerator(at) || isTmpfiles(at) || at == fstab || isPreset(at) || isUnit(at)):
		return describePath(line.path, at) + " is read by systemd, and its contents can't be checked: define it as a file or under systemd.units"
	}
	return ""
}

// checkTmpfilesArgument returns why the argument of a line is refused, or "".
func (g *guard) checkTmpfilesArgument(line tmpfilesLine, at string) string {
	switch {
	case strings.Contains(line.modifiers, "^"):
		return "the content of a credential can't be checked: write it into the line"
	case strings.Contains(line.modifiers, "~"):
		data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line.argument))
		if err != nil {
			return "the modifier ~ requires base64, and the argument is not base64: correct it"
		}
		hidden := guard{remainingBytes: g.remainingBytes}
		hidden.checkText("", at, data)
		if len(hidden.refusals) > 0 {
			return hidden.refusals[0].Why
		}
	case line.kind == 'L' && isPersistentEnvironmentFile(at):
		return at + " can be read by the kubelet, and the target of a link can't be checked: use a file"
	}
	return ""
}

// cutPattern returns the part of a path before the first component with a pattern, and the literal prefix of that
// component. systemd-tmpfiles accepts *, ?, [ and {.
func cutPattern(name string) (literal, prefix string, isPattern bool) {
	first := strings.IndexAny(name, "*?[{\\"+unknownValue)
	if first < 0 {
		return name, "", false
	}
	start := strings.LastIndexByte(name[:first], '/') + 1
	return name[:start], name[start:first], true
}

// findProtectedBelow returns a protected path below a directory, or a link to one, whose next component starts with
// prefix. It returns "" if there is none.
func (g *guard) findProtectedBelow(directory, prefix string) string {
	fits := func(name string) bool {
		return isBelow(name, directory) && strings.HasPrefix(strings.TrimPrefix(name[len(strings.TrimSuffix(directory, "/")):], "/"), prefix)
	}
	if isProtected(path.Join(directory, "a")) || isUnitDirectory(directory) {
		return directory
	}
	if i := slices.IndexFunc(examplePaths, fits); i >= 0 {
		return examplePaths[i]
	}
	redirects, begin := g.redirects.findProtected(), strings.TrimSuffix(directory, "/")+"/"+prefix
	if i, _ := slices.BinarySearch(redirects, begin); i < len(redirects) && fits(redirects[i]) {
		_, _ = g.redirects.resolve(redirects[i]) // records what it leads through
		return redirects[i]
	}
	return ""
}

// describePath returns a path and, if it differs, the path that it resolves to.
func describePath(name, at string) string {
	if path.Clean(name) == at {
		return at
	}
	return path.Clean(name) + ", which leads to " + at + ","
}
