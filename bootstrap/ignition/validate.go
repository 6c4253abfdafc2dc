package ignition

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"
)

// Validate returns a *ParseError if Ignition would refuse the configuration. A configuration that Parse returned is
// valid; a merged one can be invalid.
func Validate(c Config) error { return validateConfig(c, rules{}) }

// ValidateMerged is Validate for the result of Merge for valid configurations. It skips the contents of files, units
// and drop-ins: Merge does not change them.
func ValidateMerged(c Config) error { return validateConfig(c, rules{merged: true}) }

func validateConfig(c Config, r rules) error {
	config := reflect.ValueOf(&c).Elem()
	if err := checkWork(config); err != nil {
		return err
	}
	if problems := r.problemsIn(config); len(problems) > 0 {
		return &ParseError{Problems: LimitProblems(problems)}
	}
	return nil
}

// rules evaluates the rules of validate.ValidateWithContext. It is faster, because it visits only types with rules, and
// creates a report only of what they refuse.
type rules struct {
	merged bool // contents are valid
}

// root is the place of each value for its own rules.
var root = path.New("json")

// problemsIn returns the problems of an addressable value of any spec version 3.x, and of everything in it.
func (r rules) problemsIn(value reflect.Value) (problems []Problem) {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return nil
		}
		return r.problemsIn(value.Elem())
	case reflect.Slice:
		for i := range value.Len() {
			if inner := r.problemsIn(value.Index(i)); inner != nil {
				problems = append(problems, below("["+strconv.Itoa(i)+"]", inner)...)
			}
		}
		return problems
	case reflect.Struct:
	default:
		return allProblems(value.Addr().Interface().(validator).Validate(root))
	}
	of := shapeOf(value.Type())
	if of.isValidator && !(of.isResource && r.hasValidData(of, value)) {
		problems = allProblems(r.validate(value.Addr().Interface().(validator)))
	}
	if of.hasLists && hasSeveral(of, value) {
		problems = append(problems, allProblems(validate.ValidateDups(value, root))...)
	}
	for _, m := range of.members {
		if m.hasRules {
			if inner := r.problemsIn(value.FieldByIndex(m.index)); inner != nil {
				problems = append(problems, below(m.key, inner)...)
			}
		}
	}
	return problems
}

// validate evaluates the rules that a value has itself.
func (r rules) validate(value validator) report.Report {
	if r.merged {
		switch value := value.(type) {
		case *types.Unit:
			return types.Unit{Name: value.Name}.Validate(root)
		case *types.Dropin:
			return types.Dropin{Name: value.Name}.Validate(root)
		}
	}
	return value.Validate(root)
}

// hasSeveral reports whether a struct has several items in its lists together.
func hasSeveral(of *shape, value reflect.Value) bool {
	items := 0
	for _, m := range of.members {
		if field := value.FieldByIndex(m.index); field.Kind() == reflect.Slice {
			items += field.Len()
		}
	}
	return items > 1
}

// hasValidData reports whether a Resource has valid contents in its URL, and so satisfies its own rules.
func (r rules) hasValidData(of *shape, resource reflect.Value) bool {
	field := func(key string) reflect.Value { return resource.FieldByIndex(of.member(key).index) }
	source, compression := field("source").Interface().(*string), field("compression").Interface().(*string)
	return source != nil && field("httpHeaders").Len() == 0 &&
		(compression == nil || *compression == "" || *compression == gzipCompression) &&
		(r.merged && strings.HasPrefix(*source, "data:") || isCommonDataURL(*source))
}

// below puts the paths of problems below a path.
func below(at string, problems []Problem) []Problem {
	for i, problem := range problems {
		separator := "."
		if problem.Path == "" || problem.Path[0] == '[' {
			separator = ""
		}
		problems[i].Path = at + separator + problem.Path
	}
	return problems
}
