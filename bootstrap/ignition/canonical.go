package ignition

import (
	"encoding/json"
	"reflect"
	"strings"
)

// canonical is the one encoder of this package, for any of Ignition's types: as encoding/json writes them, but with keys in
// order, and without the empty structs that it writes for them.
func canonical(document any) ([]byte, error) {
	return json.Marshal(plain(reflect.ValueOf(document)))
}

// plain is a value made of maps, whose keys encoding/json puts in order, lists and primitives.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		object := map[string]any{}
		addFields(object, v)
		return object
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	default:
		return v.Interface()
	}
}

// addFields adds the fields of a struct to an object, those of embedded structs among them. An empty object is left out
// where it is a field; in a list it keeps its place.
func addFields(object map[string]any, v reflect.Value) {
	for i, t := 0, v.Type(); i < t.NumField(); i++ {
		field, value := t.Field(i), v.Field(i)
		if field.Anonymous {
			addFields(object, value)
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		empty := value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0
		if empty && options == "omitempty" && value.Kind() != reflect.Struct {
			continue
		}
		member := plain(value)
		if inner, isObject := member.(map[string]any); isObject && len(inner) == 0 {
			continue
		}
		object[name] = member
	}
}
