package ignition

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Mistake is a value that a type cannot hold, or a field that it does not have.
type Mistake struct {
	// Path is the path of the value, for example storage.files[2].mode. It is empty for the document.
	Path string
	// Message is what the value must be, and what it is.
	Message string
	// Value is the value.
	Value any
	// Unknown is true for a field that the type does not have, and Key is its name. The message is then empty.
	Unknown bool
	Key     string
	// Nearest is the name of the field that an unknown one is most similar to, or "".
	Nearest string
	// Place is the path in the document's type where a field has the name of an unknown one, or "".
	Place string
}

// Correct returns what to do about an unknown field.
func (m Mistake) Correct() string {
	switch {
	case m.Place != "":
		return "move it to " + m.Place
	case m.Nearest != "":
		return fmt.Sprintf("correct its name to %s, or remove it", m.Nearest)
	}
	return "correct its name, or remove it"
}

// FindMistakes returns the mistakes in a decoded document, in the order of the keys. Integers must be decoded as
// json.Number or as int64: a float64 is no whole number. Like encoding/json, it ignores the case of keys if anyCase is
// set.
func FindMistakes(document any, of reflect.Type, anyCase bool) []Mistake {
	f := finder{anyCase: anyCase, root: of}
	f.check(document, of, "")
	return f.found
}

type finder struct {
	anyCase bool
	root    reflect.Type
	found   []Mistake
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (f *finder) check(value any, of reflect.Type, at string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case value == nil:
	case reflect.PointerTo(of).Implements(unmarshaler):
		raw, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(raw, reflect.New(of).Interface())
		}
		if err != nil {
			f.refuse(value, of, at)
		}
	case of.Kind() == reflect.Struct:
		f.checkStruct(value, of, at)
	case of.Kind() == reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			f.refuse(value, of, at)
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			f.check(object[key], of.Elem(), JoinPath(at, key))
		}
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		list, ok := value.([]any)
		if !ok {
			f.refuse(value, of, at)
		}
		for i, item := range list {
			f.check(item, of.Elem(), at+"["+strconv.Itoa(i)+"]")
		}
	case !holds(of, value):
		f.refuse(value, of, at)
	}
}

func (f *finder) checkStruct(value any, of reflect.Type, at string) {
	object, ok := value.(map[string]any)
	if !ok {
		f.refuse(value, of, at)
		return
	}
	fields := map[string]reflect.Type{}
	addFields(fields, of)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		known, ok := fields[key]
		for name, inner := range fields {
			if !ok && f.anyCase && strings.EqualFold(name, key) {
				known, ok = inner, true
			}
		}
		if !ok {
			f.found = append(f.found, Mistake{Path: JoinPath(at, key), Value: object[key], Unknown: true, Key: key, Nearest: nearest(key, slices.Sorted(maps.Keys(fields))), Place: FindPlace(f.root, key)})
			continue
		}
		f.check(object[key], known, JoinPath(at, key))
	}
}

// maxDepth is how deep FindPlace searches a type.
const maxDepth = 4

// placesOf has the result of findPlaces for each type: documents can have very many unknown keys.
var placesOf sync.Map

// FindPlace returns the path of the only field with a name that is the least deep in a type, such as storage.files, or
// "" if there is none or it is at the top. Fields of the status of an object are not for users.
func FindPlace(of reflect.Type, key string) string {
	places, isKnown := placesOf.Load(of)
	if !isKnown {
		places, _ = placesOf.LoadOrStore(of, findPlaces(of))
	}
	return places.(map[string]string)[key]
}

// findPlaces returns the results of FindPlace for all names.
func findPlaces(of reflect.Type) map[string]string {
	result, places := map[string]string{}, map[string]reflect.Type{"": of}
	for range maxDepth {
		inner, found := map[string]reflect.Type{}, map[string][]string{}
		for at, of := range places {
			for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
				if of.Kind() == reflect.Slice {
					at += "[]"
				}
				of = of.Elem()
			}
			if of.Kind() != reflect.Struct || reflect.PointerTo(of).Implements(unmarshaler) {
				continue
			}
			fields := map[string]reflect.Type{}
			addFields(fields, of)
			for name, field := range fields {
				path := JoinPath(at, name)
				if path != "status" {
					inner[path] = field
				}
				found[name] = append(found[name], path)
			}
		}
		for name, paths := range found {
			if _, isLessDeep := result[name]; isLessDeep {
				continue
			}
			if result[name] = ""; len(paths) == 1 && paths[0] != name {
				result[name] = paths[0]
			}
		}
		places = inner
	}
	return result
}

// addFields adds the types of the fields of a struct, and of those embedded in it, by their names in JSON.
func addFields(to map[string]reflect.Type, of reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			inner := field.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			addFields(to, inner)
		case name != "" && name != "-":
			to[name] = field.Type
		}
	}
}

func (f *finder) refuse(value any, of reflect.Type, at string) {
	f.found = append(f.found, Mistake{Path: at, Message: DescribeType(of, value), Value: value})
}

// JoinPath appends a key to a path. A key with dots is in brackets.
func JoinPath(path, key string) string {
	switch {
	case strings.ContainsAny(key, ".[]/"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// holds reports whether a variable of a type without fields and items can hold a value.
func holds(of reflect.Type, value any) bool {
	zero := reflect.New(of).Elem()
	switch {
	case zero.CanInt():
		number, ok := wholeNumber(value)
		return ok && !zero.OverflowInt(number)
	case zero.CanUint():
		number, ok := wholeNumber(value)
		return ok && number >= 0 && !zero.OverflowUint(uint64(number))
	case zero.CanFloat():
		return isNumber(value)
	case of.Kind() == reflect.Bool:
		_, ok := value.(bool)
		return ok
	case of.Kind() == reflect.Interface:
		return true
	}
	_, ok := value.(string)
	return ok
}

// wholeNumber returns a number that is written without fraction and exponent, as encoding/json requires for integers.
// Documents are decoded with numbers or with integers.
func wholeNumber(value any) (int64, bool) {
	switch number := value.(type) {
	case int64:
		return number, true
	case json.Number:
		whole, err := number.Int64()
		return whole, err == nil
	}
	return 0, false
}

func isNumber(value any) bool {
	switch value.(type) {
	case int64, float64, json.Number:
		return true
	}
	return false
}

// DescribeType returns what a value of a type must be, and what it is.
func DescribeType(of reflect.Type, value any) string {
	want := describe(of)
	if zero := reflect.New(of).Elem(); zero.CanInt() {
		if _, isWhole := wholeNumber(value); isWhole {
			want = fmt.Sprintf("%s from %d to %d", want, int64(-1)<<(of.Bits()-1), int64(1)<<(of.Bits()-1)-1)
		}
	}
	text := "must be " + want
	switch value := value.(type) {
	case string:
		const most = 40
		if len(value) <= most {
			return text + fmt.Sprintf(", not the string %q", value)
		}
		return text + ", not a string"
	case map[string]any:
		return text + ", not an object"
	case []any:
		return text + ", not a list"
	case nil:
		return text
	case float64, json.Number:
		if number, err := strconv.ParseFloat(fmt.Sprint(value), 64); err == nil && number == math.Trunc(number) && want == "a whole number" {
			text += " without fraction and exponent"
		}
	}
	text += fmt.Sprintf(", not %v", value)
	if of.Kind() == reflect.String {
		text += ": quote it"
	}
	return text
}

// kubernetesTypes are types of Kubernetes that read JSON themselves. Programs on hosts don't link them.
var kubernetesTypes = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   "a quantity, as 500m or 1Gi",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   "a duration, as 1m30s",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       "a time, as 2026-01-02T15:04:05Z",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  "a time, as 2026-01-02T15:04:05.000000Z",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": "a whole number or a string",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    "an object",
}

func describe(of reflect.Type) string {
	if name, ok := kubernetesTypes[of.PkgPath()+"."+of.Name()]; ok {
		return name
	}
	switch of.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	}
	return "a whole number"
}

// nearest returns the name that differs from another one in at most a third of its letters, or in their case only.
func nearest(name string, from []string) string {
	best, least := "", max(len(name)/3, 1)+1
	for _, candidate := range from {
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns how many letters must be inserted, removed or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
