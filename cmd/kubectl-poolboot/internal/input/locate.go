package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// subject matches the object at the beginning of an error or a remark.
var subject = regexp.MustCompile(`^(\w+) "([^"]+)"`)

// Locate adds the file, the document and the line to an error that begins with the kind and the name of an object. An
// error with several problems gets a line of text for each. Other errors are returned as they are.
func (o *Objects) Locate(err error) error {
	at, found := o.placeOf(err.Error())
	if !found {
		return err
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && err.Error() == joined.(error).Error() {
		var located []error
		for _, one := range joined.Unwrap() {
			located = append(located, o.Locate(one))
		}
		return errors.Join(located...)
	}
	return at.locate(err)
}

// LocateText adds the place to a remark that begins with the kind and the name of an object.
func (o *Objects) LocateText(text string) string {
	if at, found := o.placeOf(text); found {
		return fmt.Sprintf("%s: %s", at.of(fieldOf(errors.New(text))), text)
	}
	return text
}

// Refuse returns an error with the places of everything that is wrong with an object, or nil if there is nothing.
func (o *Objects) Refuse(kind, name string, errs field.ErrorList) error {
	at, found := o.places[kind+" "+name]
	var all []error
	for _, err := range errs {
		where, text := at.of(err.Field), err.Error()
		if err.BadValue == (field.OmitValueType{}) || err.Type == field.ErrorTypeForbidden {
			text = err.Field + ": " + err.Detail // the kind of the error adds nothing
		}
		if match := innerLine.FindStringSubmatch(err.Detail); match != nil && strings.HasPrefix(err.Field, butaneField) {
			line, _ := strconv.ParseInt(match[1], 10, 64)
			where, text = at.ofText(butaneField, line), err.Field+": "+strings.TrimPrefix(err.Detail, match[0])
		}
		text = fmt.Sprintf("%s %q: %s", kind, name, text)
		if found {
			text = fmt.Sprintf("%s: %s", where, text)
		}
		all = append(all, errors.New(text))
	}
	return errors.Join(all...)
}

// butaneField is the field whose value is a text with lines of its own, and innerLine matches such a line.
const butaneField = "spec.butane"

var innerLine = regexp.MustCompile(`^line (\d+): `)

// placeOf returns the place of the object with which a text begins.
func (o *Objects) placeOf(text string) (place, bool) {
	match := subject.FindStringSubmatch(text)
	if match == nil {
		return place{}, false
	}
	at, found := o.places[match[1]+" "+match[2]]
	return at, found
}

// fieldAtEnd matches the field at the end of what an error says before its problems.
var fieldAtEnd = regexp.MustCompile(`(spec[A-Za-z.]*): $`)

// locate adds the place to each problem of an error about the object here. Lines of a text within the object become
// lines of the file.
func (p place) locate(err error) error {
	about, problems := splitProblems(err)
	match := fieldAtEnd.FindStringSubmatch(about)
	if match == nil {
		return fmt.Errorf("%s: %w", p.of(fieldOf(err)), err)
	}
	var all []error
	for _, problem := range problems {
		about := about
		at := p.of(match[1] + "." + problem.Path)
		if problem.Line > 0 && match[1] == butaneField { // lines of Ignition are not those of the file
			at = p.ofText(match[1], problem.Line)
		}
		problem.Line = 0
		if problem.Path != "" {
			about = strings.TrimSuffix(about, ": ") + "."
		}
		all = append(all, fmt.Errorf("%s: %s%s", at, about, problem))
	}
	return errors.Join(all...)
}

// splitProblems returns the problems of Ignition or Butane at the end of an error, and the text before them.
func splitProblems(err error) (about string, problems []ignition.Problem) {
	var malformed *ignition.ParseError
	var guarded *ignition.GuardError
	var list error
	switch {
	case errors.As(err, &malformed):
		list, problems = malformed, malformed.Problems
	case errors.As(err, &guarded):
		list = guarded
		for _, entry := range guarded.Entries {
			problems = append(problems, ignition.Problem{Path: entry.Path, Message: entry.Why})
		}
	default:
		return "", nil
	}
	about, isLast := strings.CutSuffix(err.Error(), list.Error())
	if !isLast {
		return "", nil
	}
	return about, problems
}

// fieldOf returns the path of the field that an error is about, or of the object that contains it.
func fieldOf(err error) string {
	if wrongType := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrongType) {
		return wrongType.Field
	}
	if match := fieldPath.FindStringSubmatch(err.Error()); match != nil {
		return match[1]
	}
	return "metadata"
}

// fieldPath matches the path of the field that a text about an object begins with, or of an unknown field.
var fieldPath = regexp.MustCompile(`(?:^\w+ "[^"]+": |unknown field ")((?:spec|metadata)\.[A-Za-z0-9_.\[\]]+)`)

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
