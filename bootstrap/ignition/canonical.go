package ignition

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// marshalCanonical encodes any of Ignition's types like encoding/json, but with sorted keys and without empty structs.
func marshalCanonical(document any) ([]byte, error) {
	return appendValue(nil, reflect.ValueOf(document))
}

// Equal reports whether two entries of configurations are the same in canonical form. Other notations of the same
// contents differ, and so do a field that is not set and one that is false or empty text. An empty list is the same as
// none.
func Equal[T any](a, b T) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	first, errFirst := marshalCanonical(a)
	second, errSecond := marshalCanonical(b)
	return errFirst == nil && errSecond == nil && bytes.Equal(first, second)
}

func appendValue(out []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(out, "null"...), nil
		}
		return appendValue(out, v.Elem())
	case reflect.Struct:
		return appendObject(out, v)
	case reflect.Slice:
		return appendList(out, v)
	case reflect.String:
		return append(appendEscaped(append(out, '"'), v.String()), '"'), nil
	default:
		raw, err := json.Marshal(v.Interface())
		return append(out, raw...), err
	}
}

func appendList(out []byte, v reflect.Value) (_ []byte, err error) {
	out = append(out, '[')
	for i := range v.Len() {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendValue(out, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// appendObject writes a struct. An empty object is omitted as a field, but not as an item of a list.
func appendObject(out []byte, v reflect.Value) (_ []byte, err error) {
	begin := len(out)
	for _, m := range shapeOf(v.Type()).members {
		value := v.FieldByIndex(m.index)
		if m.isEmpty(value) {
			continue
		}
		before := len(out)
		out = append(out, m.name...)
		content := len(out)
		if out, err = appendValue(out, value); err != nil {
			return nil, err
		}
		if string(out[content:]) == "{}" {
			out = out[:before]
		}
	}
	if len(out) == begin {
		return append(out, "{}"...), nil
	}
	out[begin] = '{' // replaces the comma of the first member
	return append(out, '}'), nil
}

// canBeEscaped has for each byte whether encoding/json can escape it.
var canBeEscaped = func() (bytes [256]bool) {
	for c := range bytes {
		bytes[c] = c < ' ' || c >= utf8.RuneSelf || strings.ContainsRune(`"\<>&`, rune(c))
	}
	return bytes
}()

// appendEscaped writes a string without its quotes. Most need no escapes.
func appendEscaped(out []byte, s string) []byte {
	for i := range len(s) {
		if canBeEscaped[s[i]] {
			quoted, _ := json.Marshal(s) // a string always encodes
			return append(out, quoted[1:len(quoted)-1]...)
		}
	}
	return append(out, s...)
}
