package ignition

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"
	"k8s.io/utils/ptr"
)

// Validate returns a *ParseError if Ignition would refuse the configuration. A configuration that Parse returned is
// valid; a merged one can be invalid.
func Validate(c Config) error {
	if err := checkWork(reflect.ValueOf(c)); err != nil {
		return err
	}
	if isValid(c) {
		return nil
	}
	if problems := fatalProblems(validate.ValidateWithContext(c, nil)); len(problems) > 0 {
		return &ParseError{Problems: problems}
	}
	return nil
}

// placeholderUnit is the contents of a unit that is valid and fast to validate.
var placeholderUnit = "[Unit]"

// ValidateMerged is Validate for the result of Merge for valid configurations. It skips the contents of files, units
// and drop-ins: Merge does not change them.
func ValidateMerged(c Config) error {
	if err := checkWork(reflect.ValueOf(c)); err != nil {
		return err
	}
	light := c
	light.Storage.Files = slices.Clone(c.Storage.Files)
	for i := range light.Storage.Files {
		contents := &light.Storage.Files[i].Contents
		if contents.Source != nil && strings.HasPrefix(*contents.Source, "data:") && len(contents.HTTPHeaders) == 0 {
			contents.Source = &placeholderURL
		}
	}
	light.Systemd.Units = slices.Clone(c.Systemd.Units)
	for i := range light.Systemd.Units {
		unit := &light.Systemd.Units[i]
		unit.Contents = withoutContents(unit.Contents)
		unit.Dropins = slices.Clone(unit.Dropins)
		for j := range unit.Dropins {
			unit.Dropins[j].Contents = withoutContents(unit.Dropins[j].Contents)
		}
	}
	if isValid(light) {
		return nil
	}
	if problems := mergedProblems(light); len(problems) > 0 {
		return &ParseError{Problems: LimitProblems(problems)}
	}
	return Validate(light)
}

// mergedProblems returns the problems of entries, and of entries with each other. It is faster than Ignition's
// validation of the whole document, because it visits only what is invalid.
func mergedProblems(c Config) (problems []Problem) {
	root := path.New("json")
	found := c.Validate(root)
	found.Merge(c.Storage.Validate(root.Append("storage")))
	return slices.Concat(fatalProblems(found),
		problemsIn("storage.files", c.Storage.Files), problemsIn("storage.directories", c.Storage.Directories), problemsIn("storage.links", c.Storage.Links),
		problemsIn("systemd.units", c.Systemd.Units), problemsIn("passwd.users", c.Passwd.Users), problemsIn("passwd.groups", c.Passwd.Groups),
		problemsIn("storage.disks", c.Storage.Disks), problemsIn("storage.raid", c.Storage.Raid), problemsIn("storage.luks", c.Storage.Luks),
		problemsIn("storage.filesystems", c.Storage.Filesystems))
}

// problemsIn returns the problems of the entries of one list by themselves.
func problemsIn[Entry any](list string, entries []Entry) (problems []Problem) {
	for i, entry := range entries {
		if isValid(entry) {
			continue
		}
		for _, problem := range fatalProblems(validate.ValidateWithContext(entry, nil)) {
			problem.Path = strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", list, i, problem.Path), ".")
			problems = append(problems, problem)
		}
	}
	return problems
}

// withoutContents keeps whether a unit has contents: another unit or a file at its path is then invalid.
func withoutContents(contents *string) *string {
	if ptr.Deref(contents, "") == "" {
		return nil
	}
	return &placeholderUnit
}

// isValid evaluates the same rules as validate.ValidateWithContext. It is faster because it visits only types with
// rules, and creates no report.
func isValid(config any) bool {
	return satisfiesRules(reflect.ValueOf(config), path.ContextPath{Tag: "json"})
}

// validator is an Ignition type with its own validation rules.
type validator interface {
	Validate(path.ContextPath) report.Report
}

// rules describes which parts of a type need validation.
type rules struct {
	isValidator bool  // the type implements validator
	isResource  bool  // the type is a Resource, whose source can be large
	isSystemd   bool  // the type is Systemd, whose rule only warns, and reads a template once for each instance
	lists       []int // fields that are lists, which must not have duplicates
	fields      []int // fields with rules in them
}

// rulesByType caches the rules of every type, by its reflect.Type.
var rulesByType sync.Map

func findRules(t reflect.Type) rules {
	if cached, ok := rulesByType.Load(t); ok {
		return cached.(rules)
	}
	var found rules
	found.isValidator = t.Implements(reflect.TypeFor[validator]())
	found.isResource = t.Name() == reflect.TypeFor[types.Resource]().Name()
	found.isSystemd = t.Name() == reflect.TypeFor[types.Systemd]().Name()
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			field := t.Field(i).Type
			if field.Kind() == reflect.Slice {
				found.lists = append(found.lists, i)
			}
			if hasRules(field) {
				found.fields = append(found.fields, i)
			}
		}
	}
	rulesByType.Store(t, found)
	return found
}

// hasRules reports whether any part of a type needs validation.
func hasRules(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return hasRules(t.Elem())
	case reflect.Struct:
		found := findRules(t)
		return found.isValidator || len(found.lists)+len(found.fields) > 0
	default:
		return t.Implements(reflect.TypeFor[validator]())
	}
}

// satisfiesRules reports whether a value and everything in it satisfies the rules.
func satisfiesRules(v reflect.Value, place path.ContextPath) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || satisfiesRules(v.Elem(), place)
	case reflect.Slice:
		for i := range v.Len() {
			if !satisfiesRules(v.Index(i), place) {
				return false
			}
		}
		return true
	}
	typeRules := findRules(v.Type())
	if typeRules.isResource {
		v = withoutDataURL(v)
	}
	if typeRules.isValidator && !typeRules.isSystemd && v.Interface().(validator).Validate(place).IsFatal() {
		return false
	}
	entries := 0
	for _, i := range typeRules.lists {
		entries += v.Field(i).Len()
	}
	if entries > 1 && validate.ValidateDups(v, place).IsFatal() {
		return false
	}
	for _, i := range typeRules.fields {
		if !satisfiesRules(v.Field(i), place) {
			return false
		}
	}
	return true
}
