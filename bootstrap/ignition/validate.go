package ignition

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"
)

// Validate returns a *ParseError when Ignition would refuse the configuration, and nil otherwise. A configuration that
// Parse returned is valid; one that was merged need not be.
func Validate(c Config) error {
	if passes(c) {
		return nil
	}
	if problems := problemsIn(validate.ValidateWithContext(c, nil)); len(problems) > 0 {
		return &ParseError{Problems: problems}
	}
	return nil
}

// ValidateMerged is Validate for what Merge made of valid configurations. It does not look into the contents of files,
// units and drop-ins again: they are whole, and were valid, in the configuration that they are from.
func ValidateMerged(c Config) error {
	light := c
	light.Storage.Files = slices.Clone(c.Storage.Files)
	for i := range light.Storage.Files {
		contents := &light.Storage.Files[i].Contents
		if contents.Source != nil && strings.HasPrefix(*contents.Source, "data:") && len(contents.HTTPHeaders) == 0 {
			contents.Source = &elsewhere
		}
	}
	light.Systemd.Units = slices.Clone(c.Systemd.Units)
	for i := range light.Systemd.Units {
		unit := &light.Systemd.Units[i]
		unit.Contents = nil
		unit.Dropins = slices.Clone(unit.Dropins)
		for j := range unit.Dropins {
			unit.Dropins[j].Contents = nil
		}
	}
	if passes(light) {
		return nil
	}
	return Validate(c)
}

// passes asks every rule of Ignition's that validate.ValidateWithContext asks, and only whether it holds. It looks
// where there are rules, and writes no report of places, which takes most of the time that Ignition's own walk does.
func passes(config any) bool {
	return holds(reflect.ValueOf(config), path.ContextPath{Tag: "json"})
}

// ruled is a type of Ignition's with rules of its own.
type ruled interface {
	Validate(path.ContextPath) report.Report
}

// rules say where in a type there is something to check.
type rules struct {
	own    bool  // the type is ruled
	data   bool  // the type is a Resource, which may hold much
	units  bool  // the type is Systemd, whose rule is about instances of units alone
	lists  []int // fields that are lists, in which nothing may be twice
	fields []int // fields with rules in them
}

// rulesOf are the rules of every type that was met, by its reflect.Type.
var rulesOf sync.Map

func rulesFor(t reflect.Type) rules {
	if known, has := rulesOf.Load(t); has {
		return known.(rules)
	}
	var found rules
	found.own = t.Implements(reflect.TypeFor[ruled]())
	found.data = t.Name() == reflect.TypeFor[types.Resource]().Name()
	found.units = t.Name() == reflect.TypeFor[types.Systemd]().Name()
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
	rulesOf.Store(t, found)
	return found
}

// hasRules says whether anything of a type is checked.
func hasRules(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return hasRules(t.Elem())
	case reflect.Struct:
		found := rulesFor(t)
		return found.own || len(found.lists)+len(found.fields) > 0
	default:
		return t.Implements(reflect.TypeFor[ruled]())
	}
}

// holds says whether a value keeps its rules, and those of everything in it.
func holds(v reflect.Value, place path.ContextPath) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || holds(v.Elem(), place)
	case reflect.Slice:
		for i := range v.Len() {
			if !holds(v.Index(i), place) {
				return false
			}
		}
		return true
	}
	checked := rulesFor(v.Type())
	if checked.data {
		v = withoutData(v)
	}
	if checked.own && (!checked.units || hasInstances(v)) && v.Interface().(ruled).Validate(place).IsFatal() {
		return false
	}
	entries := 0
	for _, i := range checked.lists {
		entries += v.Field(i).Len()
	}
	if entries > 1 && validate.ValidateDups(v, place).IsFatal() {
		return false
	}
	for _, i := range checked.fields {
		if !holds(v.Field(i), place) {
			return false
		}
	}
	return true
}

// hasInstances says whether any of a configuration's units, of any spec version, is an instance of another. Ignition's
// rule about them has nothing to look at when there is none, and would only compile its regular expression.
func hasInstances(systemd reflect.Value) bool {
	units := systemd.FieldByName("Units")
	for i := range units.Len() {
		if strings.Contains(units.Index(i).FieldByName("Name").String(), "@") {
			return true
		}
	}
	return false
}
