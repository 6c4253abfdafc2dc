package input

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// subject matches the object at the beginning of an error or a remark.
var subject = regexp.MustCompile(`^(\w+) "([^"]+)"`)

// Locate adds the file, the document and the line to an error that begins with the kind and the name of an object. An
// error with several problems gets a line of text for each. Other errors are returned as they are.
func (o *Objects) Locate(err error) error {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		var located []error
		for _, one := range joined.Unwrap() {
			located = append(located, o.Locate(one))
		}
		return errors.Join(InOrder(located...)...)
	}
	if located := (*problem)(nil); errors.As(err, &located) {
		return err
	}
	if conflict := (*pool.Conflict)(nil); errors.As(err, &conflict) {
		return o.LocateField(conflict.Entry.Field, conflict.Describe(o.remarkPlace))
	}
	at, found := o.placeOf(err.Error())
	if !found {
		return err
	}
	return at.locate(err)
}

// remarkPlace returns the place of a field as a remark, or "" if it is not in the files.
func (o *Objects) remarkPlace(of pool.Place) string {
	at, found := o.places[of.Kind+" "+of.Name]
	if !found {
		return ""
	}
	return fmt.Sprintf(" (%s)", at.of(of.Field))
}

// LocateText returns a remark that begins with the kind and the name of an object as an error with its place.
func (o *Objects) LocateText(text string) error {
	return o.LocateField(fieldOf(text), text)
}

// LocateField returns a remark that begins with the kind and the name of an object as an error with the place of a
// field.
func (o *Objects) LocateField(path, text string) error {
	if at, found := o.placeOf(text); found {
		return at.of(path).errorf("%s", text)
	}
	return errors.New(onOneLine(text))
}

// Refuse returns an error with the places of everything that is wrong with an object, or nil if there is nothing. Of
// several errors about one field, those of the schema about its type are left out.
func (o *Objects) Refuse(kind, name string, errs field.ErrorList) error {
	at, found := o.places[kind+" "+name]
	about := map[string]int{}
	for _, err := range errs {
		about[err.Field]++
	}
	var all []error
	for _, err := range errs {
		if strings.Contains(err.Detail, schemaType) && about[err.Field] > 1 {
			continue
		}
		text := fmt.Sprintf("%s %q: %s: %s", kind, name, err.Field, DescribeField(err))
		if !found {
			all = append(all, errors.New(text))
			continue
		}
		where := at.of(err.Field)
		if match := innerLine.FindStringSubmatch(err.Detail); match != nil && strings.HasPrefix(err.Field, butaneField) {
			line, _ := strconv.ParseInt(match[1], 10, 64)
			where, text = at.ofText(butaneField, line), fmt.Sprintf("%s %q: %s: %s", kind, name, err.Field, strings.TrimPrefix(err.Detail, match[0]))
		}
		all = append(all, where.errorf("%s", text))
	}
	return errors.Join(InOrder(all...)...)
}

// schemaType is in the errors of a schema about the type of a value.
const schemaType = " in body must be of type "

// DescribeField returns what is wrong with a field, without the field, and what to do.
func DescribeField(err *field.Error) string {
	_, wanted, isSchemaType := strings.Cut(err.Detail, schemaType)
	switch {
	case isSchemaType:
		wanted, _, _ = strings.Cut(wanted, ":")
		return "must be of type " + wanted
	case err.Type == field.ErrorTypeRequired && err.Detail == "":
		return "is missing: set it"
	case err.Type == field.ErrorTypeRequired:
		return "is missing: " + err.Detail
	case err.Type == field.ErrorTypeDuplicate:
		return err.ErrorBody() + ": remove one"
	case strings.HasSuffix(err.Detail, "not a valid selector operator"):
		return fmt.Sprintf("%q is no operator: use In, NotIn, Exists or DoesNotExist", err.BadValue)
	case err.Detail == err.Field+" in body should be at least 1 chars long":
		return "must not be empty: set it, or remove it"
	case strings.HasPrefix(err.Detail, err.Field+" in body "):
		return strings.Replace(strings.TrimPrefix(err.Detail, err.Field+" in body "), "should ", "must ", 1)
	case err.BadValue == (field.OmitValueType{}), fmt.Sprint(err.BadValue) == "", err.Type == field.ErrorTypeForbidden, isComposite(err.BadValue):
		return err.Detail // the kind of the error adds nothing
	}
	return strings.Replace(err.ErrorBody(), `supported values: "", `, "supported values: ", 1)
}

// isComposite reports whether a value would be written in the notation of Go.
func isComposite(value any) bool {
	switch reflect.ValueOf(value).Kind() {
	case reflect.Map, reflect.Slice, reflect.Struct, reflect.Invalid:
		return true
	}
	return false
}

// butaneField is the field whose value is a text with lines of its own, and innerLine matches such a line.
const butaneField = "spec.butane"

var innerLine = regexp.MustCompile(`^line (\d+): `)

// PlaceOf returns where an object was read, without the line.
func (o *Objects) PlaceOf(kind, name string) string {
	return o.places[kind+" "+name].String()
}

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
		return &problem{p.of(fieldOf(err.Error())), err}
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
		all = append(all, at.errorf("%s%s", about, problem))
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

// fieldOf returns the path of the field that a text about an object is about, or of the object's metadata.
func fieldOf(text string) string {
	if match := fieldPath.FindStringSubmatch(text); match != nil {
		return strings.TrimSuffix(match[1], ".")
	}
	return "metadata"
}

// fieldPath matches the path of the field that a text about an object begins with.
var fieldPath = regexp.MustCompile(`^\w+ "[^"]+": ((?:spec|metadata)(?:\.[A-Za-z0-9_]+|\[[^\]]*\])*)`)

// fieldsError is an error about fields of one object.
type fieldsError struct {
	errs field.ErrorList
}

func (e *fieldsError) Error() string { return e.errs.ToAggregate().Error() }

// findMistakes returns the mistakes in an object. Keys of Ignition in the spec of a MachineConfig belong into its
// config.
func findMistakes(object any, of reflect.Type) []ignition.Mistake {
	mistakes := ignition.FindMistakes(object, of, false)
	for i, mistake := range mistakes {
		if !mistake.Unknown || of != reflect.TypeFor[poolv1.MachineConfig]() || mistake.Path != "spec."+mistake.Key {
			continue
		}
		if place := ignition.PlaceOf(mistake.Key); place != "" {
			mistakes[i].Place = "spec.config." + place
		}
	}
	return mistakes
}

// explainDecoding returns every value in JSON that a type of objects can't hold, instead of an error about the first.
// If strict is set, it also returns the fields that the type does not have.
func explainDecoding(err error, raw []byte, of reflect.Type, strict bool) error {
	var document any
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &document) != nil {
		return err
	}
	var errs field.ErrorList
	for _, mistake := range findMistakes(document, of) {
		switch {
		case !mistake.Unknown:
			errs = append(errs, field.TypeInvalid(field.NewPath(mistake.Path), field.OmitValueType{}, mistake.Message))
		case strict:
			errs = append(errs, field.Invalid(field.NewPath(mistake.Path), field.OmitValueType{}, "there is no such field: "+mistake.Correct()))
		}
	}
	if len(errs) == 0 {
		return err
	}
	return &fieldsError{errs}
}
