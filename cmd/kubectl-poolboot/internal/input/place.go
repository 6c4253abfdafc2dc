package input

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// document is one document of a file.
type document struct {
	text []byte
	line int // the line of the file at which text begins, counted from 1; 0 if it is unknown

	root   *yaml.Node // nil if the text is malformed
	parsed bool
}

// place is where an object was read.
type place struct {
	file   string
	read   int   // how many documents were read before it
	number int   // of the document, counted from 1; 0 for a file that is one document
	items  []int // of a list, and of lists in it, counted from 1; empty when the object is the document
	in     *document
	at     int // the line of the file that is meant; 0 for the whole object
}

func (p place) String() string {
	text := onOneLine(p.file)
	if p.number > 0 {
		text += fmt.Sprintf(": document %d", p.number)
	}
	for _, item := range p.items {
		text += fmt.Sprintf(": item %d", item)
	}
	if p.at != 0 {
		text += fmt.Sprintf(": line %d", p.at)
	}
	return text
}

// position is a place in a text: an offset, and its line, counted from 1.
type position struct{ offset, line int }

// findChunk returns the line at which a part of a text begins, searching from a position, and the position behind it.
// The line is 0 if the text does not contain the part byte for byte.
func findChunk(text, chunk []byte, from position) (line int, behind position) {
	i := bytes.Index(text[from.offset:], chunk)
	if i < 0 {
		return 0, from
	}
	line = from.line + bytes.Count(text[from.offset:from.offset+i], []byte("\n"))
	return line, position{offset: from.offset + i + len(chunk), line: line + bytes.Count(chunk, []byte("\n"))}
}

// yamlLine matches the line in each message about YAML.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// ofYAML returns an error about the YAML of a document, with the line of each of its messages in its file.
func (p place) ofYAML(err error) error {
	var located []error
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "error converting YAML to JSON: ")
		match := yamlLine.FindStringSubmatch(line)
		switch {
		case line == "yaml: unmarshal errors:":
		case strings.HasPrefix(line, "json: unsupported value: "):
			p.at = p.in.line + max(lineOfInfinity(parseLines(p.in.text)), 1) - 1
			located = append(located, p.errorf("a number must be finite: correct it"))
		case match != nil && p.in.line > 0:
			number, _ := strconv.Atoi(match[1])
			p.at = p.in.line + number - 1
			located = append(located, p.malformed(match[2]))
		default:
			p.at = p.in.line // the parser does not name the first line
			located = append(located, p.malformed(strings.TrimPrefix(line, "yaml: ")))
		}
	}
	return errors.Join(located...)
}

// lineOfInfinity returns the line of the first number that JSON does not have, or 0.
func lineOfInfinity(node *yaml.Node) int {
	if node == nil {
		return 0
	}
	var number float64
	if node.ShortTag() == "!!float" && node.Decode(&number) == nil && (math.IsInf(number, 0) || math.IsNaN(number)) {
		return node.Line
	}
	for _, inner := range node.Content {
		if line := lineOfInfinity(inner); line > 0 {
			return line
		}
	}
	return 0
}

// malformed returns an error about YAML with what to do.
func (p place) malformed(what string) error {
	if match := alreadySet.FindStringSubmatch(what); match != nil {
		return p.errorf("%s is given twice: remove one", match[1])
	}
	switch {
	case strings.HasSuffix(what, mustBeFirst):
		return p.errorf("%s", what)
	case strings.Contains(what, "UTF-8"):
		valid := bytes.ToValidUTF8(p.in.text, []byte{0xff})
		p.at = p.in.line + bytes.Count(valid[:max(bytes.IndexByte(valid, 0xff), 0)], []byte("\n"))
		return p.errorf("is not a text in UTF-8: save it in UTF-8, or decompress it")
	case tabIndent.Match(p.line()):
		return p.errorf("malformed YAML: a tab in the indentation: use spaces")
	}
	return p.errorf("malformed YAML: %s: correct it", what)
}

// line returns the text of the line that is meant.
func (p place) line() []byte {
	lines := bytes.Split(p.in.text, []byte("\n"))
	if i := p.at - p.in.line; i >= 0 && i < len(lines) {
		return lines[i]
	}
	return nil
}

// tabIndent matches a line with a tab before its text.
var tabIndent = regexp.MustCompile(`^\s*\t`)

var alreadySet = regexp.MustCompile(`^key (".*") ` + keyTwice + `$`)

// segments matches the parts of a path such as spec.config.storage.files[2].mode or spec.node.labels[example.com/a].
var segments = regexp.MustCompile(`\[[^\]]*\]|[^.\[\]]+`)

// of returns the place of a field of the object, or of the innermost object around it that exists. A path in Butane, as
// spec.butane.storage, leads into the text.
func (p place) of(path string) place {
	if inside, isInside := strings.CutPrefix(path, butaneField+"."); isInside {
		if text, _ := p.find(butaneField); text != nil && text.Kind == yaml.ScalarNode {
			if root := parseLines([]byte(text.Value)); root != nil {
				_, line := findIn(root, snakeCase(inside))
				return p.ofText(butaneField, int64(line))
			}
		}
	}
	if _, line := p.find(path); line > 0 {
		p.at = p.in.line + line - 1
	}
	return p
}

// ofText returns the place of a line, counted from 1, of a text that is the value of a field. If the lines of the text
// are not those of the file, it is the place of the field.
func (p place) ofText(path string, line int64) place {
	node, at := p.find(path)
	switch {
	case at == 0:
	case node != nil && node.Style == yaml.LiteralStyle && line > 0:
		p.at = p.in.line + node.Line + int(line) - 1
	default:
		p.at = p.in.line + at - 1
	}
	return p
}

// snakeCase returns a path of Ignition in the notation of Butane.
func snakeCase(path string) string {
	return upperCase.ReplaceAllStringFunc(path, func(letter string) string { return "_" + strings.ToLower(letter) })
}

var upperCase = regexp.MustCompile(`[A-Z]`)

// find returns the value at a path and the line of its key in the document. The value is nil if the path does not
// exist, and the line is then that of the innermost key that does. The line is 0 if the document has no lines.
func (p place) find(path string) (*yaml.Node, int) {
	if p.in == nil || p.in.line == 0 {
		return nil, 0
	}
	if !p.in.parsed {
		p.in.root, p.in.parsed = parseLines(p.in.text), true
	}
	if p.in.root == nil {
		return nil, 0
	}
	var prefix strings.Builder
	for _, item := range p.items {
		fmt.Fprintf(&prefix, "items[%d].", item-1)
	}
	return findIn(p.in.root, prefix.String()+path)
}

// parseLines parses YAML or JSON for its lines. It returns nil if the text is malformed.
func parseLines(text []byte) *yaml.Node {
	var whole yaml.Node
	if yaml.Unmarshal(text, &whole) != nil {
		// JSON can be indented with tabs, which YAML does not allow. Strings in JSON contain none.
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
		if yaml.Unmarshal(text, &whole) != nil {
			return nil
		}
	}
	if len(whole.Content) != 1 {
		return nil
	}
	return whole.Content[0]
}

func findIn(root *yaml.Node, path string) (*yaml.Node, int) {
	node, line := root, root.Line
	for _, segment := range segments.FindAllString(path, -1) {
		value, at := child(node, strings.Trim(segment, "[]"))
		if value == nil {
			return nil, line
		}
		node, line = value, at
	}
	return node, line
}

// child returns the value of a key or the item with an index, and its line.
func child(of *yaml.Node, segment string) (*yaml.Node, int) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	switch of.Kind {
	case yaml.MappingNode:
		for i := len(of.Content) - 2; i >= 0; i -= 2 { // of keys that are given twice, the last one counts
			if of.Content[i].Value == segment {
				return of.Content[i+1], of.Content[i].Line
			}
		}
		for i := len(of.Content) - 2; i >= 0; i -= 2 { // Ignition ignores the case
			if strings.EqualFold(of.Content[i].Value, segment) {
				return of.Content[i+1], of.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(segment); err == nil && i >= 0 && i < len(of.Content) {
			return of.Content[i], of.Content[i].Line
		}
	}
	return nil, 0
}

// mergeTag is the tag of the key <<, which merges mappings into one.
const mergeTag = "!!merge"

// keyTwice is in the parser's error for a key that is given twice.
const keyTwice = "already set in map"

// mustBeFirst is the error for a merge key behind other keys: kubectl and kustomize differ in which one wins.
const mustBeFirst = `"<<" is behind other keys: write it before them`

// definedTwice matches the error of a parser that knows merge keys about a key that is given twice.
var definedTwice = regexp.MustCompile(`^line (\d+): mapping key (".*") already defined at line \d+$`)

// explainMergeKeys returns the error of the parser about keys of a text that are given twice, without those that are
// written over merged ones: the parser does not know merge keys.
func explainMergeKeys(text []byte, err error) error {
	root := parseLines(text)
	if root == nil {
		return err
	}
	hasMergeKey, errs := findMergeKeys(root)
	if !hasMergeKey {
		return err
	}
	if twice := (*yaml.TypeError)(nil); errors.As(root.Decode(new(any)), &twice) {
		for _, problem := range twice.Errors {
			errs = append(errs, errors.New(definedTwice.ReplaceAllString(problem, "line $1: key $2 "+keyTwice)))
		}
	}
	return errors.Join(errs...)
}

// findMergeKeys reports whether there is a merge key, and returns an error for each that is not the first key.
func findMergeKeys(node *yaml.Node) (found bool, late []error) {
	for i, inner := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && inner.ShortTag() == mergeTag {
			found = true
			if i > 0 {
				late = append(late, fmt.Errorf("line %d: %s", inner.Line, mustBeFirst))
			}
		}
		isWithin, more := findMergeKeys(inner)
		found, late = found || isWithin, append(late, more...)
	}
	return found, late
}

// Marks at the beginning of a file.
var (
	utf8Mark        = []byte{0xef, 0xbb, 0xbf}
	littleEndian    = []byte{0xff, 0xfe}
	bigEndian       = []byte{0xfe, 0xff}
	gzipMark        = []byte{0x1f, 0x8b}
	errIsCompressed = errors.New("is compressed with gzip: decompress it, for example with gunzip")
)

// Normalize returns a text in UTF-8 with line feeds only, one of them at its end. On Windows, editors write byte order
// marks and carriage returns, and PowerShell writes the output of a command as UTF-16.
func Normalize(text []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(text, gzipMark):
		return nil, errIsCompressed
	case bytes.HasPrefix(text, littleEndian):
		text = decodeUTF16(text[len(littleEndian):], binary.LittleEndian)
	case bytes.HasPrefix(text, bigEndian):
		text = decodeUTF16(text[len(bigEndian):], binary.BigEndian)
	}
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, utf8Mark), []byte("\r\n"), []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n') // as the reader of documents does
	}
	return text, nil
}

func decodeUTF16(text []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = order.Uint16(text[2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}
