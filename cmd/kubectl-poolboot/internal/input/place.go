package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// place is where an object was read.
type place struct {
	file     string
	document int // counted from 1
	item     int // of a list, counted from 1; 0 when the object is the document

	text []byte // the document
	line int    // the line of the file at which text begins, counted from 1; 0 if it is unknown
	at   int    // the line of the file that is meant; 0 for the whole object
}

func (p place) String() string {
	text := fmt.Sprintf("%s: document %d", p.file, p.document)
	if p.item != 0 {
		text += fmt.Sprintf(": item %d", p.item)
	}
	if p.at != 0 {
		text += fmt.Sprintf(": line %d", p.at)
	}
	return text
}

// lineOfChunk returns the line at which a part of a text begins, searching from an offset, and the offset behind it.
// The line is 0 if the text does not contain the part byte for byte, as with other line endings.
func lineOfChunk(text, chunk []byte, from int) (line, end int) {
	i := bytes.Index(text[from:], chunk)
	if i < 0 {
		return 0, from
	}
	return 1 + bytes.Count(text[:from+i], []byte("\n")), from + i + len(chunk)
}

// yamlLine matches the line in an error about YAML.
var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: line (\d+): `)

// ofYAML returns an error about the YAML of a document, with the line in its file.
func (p place) ofYAML(err error) error {
	if match := yamlLine.FindStringSubmatch(err.Error()); match != nil && p.line > 0 {
		number, _ := strconv.Atoi(match[1])
		p.at = p.line + number - 1
		return fmt.Errorf("%s: %s", p, strings.TrimPrefix(err.Error(), match[0]))
	}
	return fmt.Errorf("%s: %w", p, err)
}

// segments matches the parts of a path such as spec.config.storage.files[2].mode.
var segments = regexp.MustCompile(`[^.\[\]]+`)

// of returns the place of a field of the object, or of the innermost object around it that exists.
func (p place) of(path string) place {
	var document yaml.Node
	if p.line == 0 || yaml.Unmarshal(p.text, &document) != nil || len(document.Content) != 1 {
		return p
	}
	if p.item > 0 {
		path = fmt.Sprintf("items[%d].%s", p.item-1, path)
	}
	node, line := document.Content[0], document.Content[0].Line
	for _, segment := range segments.FindAllString(path, -1) {
		value, at := child(node, segment)
		if value == nil {
			break
		}
		node, line = value, at
	}
	p.at = p.line + line - 1
	return p
}

// child returns the value of a key or the item with an index, and its line.
func child(of *yaml.Node, segment string) (*yaml.Node, int) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	switch of.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(of.Content); i += 2 {
			if of.Content[i].Value == segment {
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

// subject matches the object at the beginning of an error.
var subject = regexp.MustCompile(`^(\w+) "([^"]+)"`)

// Locate adds the file, the document and the line to an error that begins with the kind and the name of an object.
// Other errors are returned as they are.
func (o *Objects) Locate(err error) error {
	match := subject.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	at, found := o.places[match[1]+" "+match[2]]
	if !found {
		return err
	}
	return fmt.Errorf("%s: %w", at.of(fieldOf(err)), err)
}

// fieldOf returns the path of the field that an error is about, or of the object that contains it.
func fieldOf(err error) string {
	var invalid *ignition.ParseError
	var guarded *ignition.GuardError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &invalid):
		return "spec.config." + invalid.Problems[0].Path
	case errors.As(err, &guarded):
		return "spec.config." + guarded.Entries[0].Path
	case errors.As(err, &wrongType):
		return wrongType.Field
	}
	if match := fieldPath.FindStringSubmatch(err.Error()); match != nil {
		return match[1]
	}
	return "metadata"
}

// fieldPath matches the path of a field in an error.
var fieldPath = regexp.MustCompile(`(?:^|[ "])((?:spec|metadata)\.[A-Za-z0-9_.\[\]]+)`)

// describeTypes returns an error about a value of a wrong type without the names of Go's types.
func describeTypes(err error) error {
	var wrongType *json.UnmarshalTypeError
	if !errors.As(err, &wrongType) {
		return err
	}
	want := "a " + wrongType.Type.Kind().String()
	switch kind := wrongType.Type.Kind(); {
	case kind == reflect.Struct || kind == reflect.Map:
		want = "an object"
	case kind == reflect.Slice:
		want = "a list"
	case kind == reflect.Bool:
		want = "true or false"
	case kind >= reflect.Int && kind <= reflect.Float64:
		want = "a number"
	}
	return fmt.Errorf("%s: must be %s, is JSON %s", wrongType.Field, want, wrongType.Value)
}
