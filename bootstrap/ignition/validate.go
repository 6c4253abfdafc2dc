package ignition

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/util"
	"github.com/coreos/vcontext/path"
)

// Validate returns a *ParseError if Ignition would refuse the configuration. A configuration that Parse returned is
// valid; a merged one can be invalid.
func Validate(c Config) error { return validateConfig(c, rules{}) }

// ValidateMerged is Validate for the result of Merge for valid configurations. It skips the rules that Merge can't
// break: those of single files, units and drop-ins, and of contents, which are replaced as a whole.
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
	merged bool // the configuration is the result of Merge for valid ones
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
	if of.isUnit && isPlainUnit(of.field("contents", value).Interface().(*string)) {
		light := reflect.New(value.Type()).Elem()
		light.Set(value)
		of.field("contents", light).SetZero()
		value = light
	}
	isValid := r.merged && of.staysValid || of.isResource && r.hasValidData(of, value)
	if of.isValidator && !isValid {
		problems = allProblems(value.Addr().Interface().(validator).Validate(root))
	}
	if of.hasLists {
		problems = append(problems, duplicatesIn(of, value)...)
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

// duplicatesIn returns the items of the lists of a struct that have the key of an earlier item, as
// validate.ValidateDups does. Some lists share their keys, and some can have duplicates.
func duplicatesIn(of *shape, value reflect.Value) (problems []Problem) {
	items := 0
	for _, m := range of.members {
		if m.isList {
			items += value.FieldByIndex(m.index).Len()
		}
	}
	if items < 2 {
		return nil
	}
	var ignored map[string]struct{}
	if lists, ok := value.Addr().Interface().(util.IgnoresDups); ok {
		ignored = lists.IgnoreDuplicates()
	}
	var shared map[string]string
	if lists, ok := value.Addr().Interface().(util.MergesKeys); ok {
		shared = lists.MergedKeys()
	}
	type key struct{ list, item string }
	seen := make(map[key]bool, items)
	for _, m := range of.members {
		if _, isIgnored := ignored[m.field]; !m.isList || isIgnored {
			continue
		}
		list := value.FieldByIndex(m.index)
		for i := range list.Len() {
			this := key{cmp.Or(shared[m.field], m.field), keyOf(list.Index(i))}
			if seen[this] {
				addProblem(&problems, func() Problem {
					return Problem{Path: fmt.Sprintf("%s[%d]", m.key, i), Message: withRemedy(errors.ErrDuplicate.Error())}
				})
			}
			seen[this] = true
		}
	}
	return problems
}

// keyOf returns the key by which Ignition compares an item of a list.
func keyOf(item reflect.Value) string {
	if with, ok := item.Addr().Interface().(keyed); ok {
		return with.Key()
	}
	return item.String()
}

// hasValidData reports whether a Resource has valid contents in its URL, and so satisfies its own rules.
func (r rules) hasValidData(of *shape, resource reflect.Value) bool {
	source, compression := of.field("source", resource).Interface().(*string), of.field("compression", resource).Interface().(*string)
	return source != nil && of.field("httpHeaders", resource).Len() == 0 &&
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

// isPlainUnit reports whether contents of a unit or a drop-in certainly are valid: sections, comments and settings of
// one line each. Ignition's parser takes a goroutine for each unit.
func isPlainUnit(contents *string) bool {
	if contents == nil || !strings.HasPrefix(*contents, "[") || strings.Contains(*contents, "\r") {
		return false
	}
	for line := range strings.Lines(*contents) {
		text := strings.TrimSpace(line)
		switch {
		case len(line) >= unit.SYSTEMD_LINE_MAX, strings.HasSuffix(text, `\`):
			return false
		case text == "", text[0] == '#', text[0] == ';':
		case text[0] == '[':
			if strings.IndexByte(text, ']') != len(text)-1 {
				return false
			}
		case !strings.Contains(text, "="):
			return false
		}
	}
	return true
}
