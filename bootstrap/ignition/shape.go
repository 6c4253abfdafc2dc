package ignition

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"
)

// shape is what Poolboot needs to know about a struct of any spec version.
type shape struct {
	members     []member // including those of embedded structs, in the order of their keys
	isValidator bool     // the type has rules of its own that can refuse a value
	hasLists    bool     // which must not have duplicates
	staysValid  bool     // the rules of the type hold for what is merged from values for which they hold
	isUnit      bool     // the type is a unit or a drop-in, whose contents take time to parse
	isResource  bool     // the type is a Resource, whose source can be large
	pairs       sync.Map // the pairs of each type that is converted to, by its reflect.Type
}

// member is a field of a struct.
type member struct {
	key       string
	field     string // the name in Go
	name      string // the key as it is written, with comma, quotes and colon
	index     []int
	omitEmpty bool
	isList    bool
	hasRules  bool // the field, or something in it, has rules
}

// validator is an Ignition type with its own validation rules.
type validator interface {
	Validate(path.ContextPath) report.Report
}

// shapes has the shape of every type, by its reflect.Type.
var shapes sync.Map

func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	found := &shape{
		// The rule of Systemd only warns, and reads a template once for each instance.
		isValidator: implementsRules(t) && t.Name() != reflect.TypeFor[types.Systemd]().Name(),
		staysValid:  slices.Contains([]reflect.Type{reflect.TypeFor[types.File](), reflect.TypeFor[types.Unit](), reflect.TypeFor[types.Dropin]()}, t),
		isUnit:      t.Name() == reflect.TypeFor[types.Unit]().Name() || t.Name() == reflect.TypeFor[types.Dropin]().Name(),
		isResource:  t.Name() == reflect.TypeFor[types.Resource]().Name(),
	}
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Anonymous {
			inner := shapeOf(field.Type)
			found.hasLists = found.hasLists || inner.hasLists
			for _, m := range inner.members {
				m.index = slices.Concat([]int{i}, m.index)
				found.members = append(found.members, m)
			}
			continue
		}
		key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		found.hasLists = found.hasLists || field.Type.Kind() == reflect.Slice
		found.members = append(found.members, member{key: key, field: field.Name, name: `,"` + key + `":`, index: []int{i}, isList: field.Type.Kind() == reflect.Slice,
			omitEmpty: options == "omitempty" && field.Type.Kind() != reflect.Struct, hasRules: hasRules(field.Type)})
	}
	slices.SortFunc(found.members, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	shapes.Store(t, found)
	return found
}

func implementsRules(t reflect.Type) bool { return t.Implements(reflect.TypeFor[validator]()) }

// hasRules reports whether any part of a type needs validation.
func hasRules(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return hasRules(t.Elem())
	case reflect.Struct:
		found := shapeOf(t)
		return found.isValidator || found.hasLists || slices.ContainsFunc(found.members, func(m member) bool { return m.hasRules })
	}
	return implementsRules(t)
}

// member returns the member with a key, or nil.
func (s *shape) member(key string) *member {
	for i := range s.members {
		if s.members[i].key == key {
			return &s.members[i]
		}
	}
	return nil
}

// field returns the field of a struct with a key that exists.
func (s *shape) field(key string, of reflect.Value) reflect.Value {
	return of.FieldByIndex(s.member(key).index)
}

// isEmpty reports whether a field is not written. An empty object is not written either.
func (m member) isEmpty(value reflect.Value) bool {
	return m.omitEmpty && (value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0)
}
