package ignition

import "reflect"

// convert copies a configuration, or a part of one, to the type of another spec version 3.x: they all have the same
// keys with the same meaning, and later versions have more. It returns the path of the first value, in the order of the
// keys, that the other type does not have, or nil.
func convert(to, from reflect.Value) (lost []any) {
	switch {
	case to.Type() == from.Type():
		to.Set(from)
	case from.Kind() == reflect.Pointer:
		switch {
		case from.IsNil():
		case to.Kind() == reflect.Pointer && to.Type().Elem() == from.Type().Elem():
			to.Set(from.Convert(to.Type()))
		default:
			return convert(to, from.Elem())
		}
	case to.Kind() == reflect.Pointer:
		if from.Kind() != reflect.Struct || !from.IsZero() {
			to.Set(reflect.New(to.Type().Elem()))
			return convert(to.Elem(), from)
		}
	case from.Kind() == reflect.Struct:
		return convertStruct(to, from)
	case from.Kind() == reflect.Slice:
		if from.IsNil() {
			return nil
		}
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			if inner := convert(to.Index(i), from.Index(i)); inner != nil && lost == nil {
				lost = append([]any{i}, inner...)
			}
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
	return lost
}

// pair is a member of one struct and its index in another one, or nil if that one does not have it.
type pair struct {
	member
	to []int
}

// pairsOf returns the pairs of two types.
func pairsOf(to, from reflect.Type) []pair {
	of := shapeOf(from)
	if known, ok := of.pairs.Load(to); ok {
		return known.([]pair)
	}
	var found []pair
	for _, m := range of.members {
		p := pair{member: m}
		if other := shapeOf(to).member(m.key); other != nil {
			p.to = other.index
		}
		found = append(found, p)
	}
	of.pairs.Store(to, found)
	return found
}

func convertStruct(to, from reflect.Value) (lost []any) {
	for _, p := range pairsOf(to.Type(), from.Type()) {
		var inner []any
		if value := from.FieldByIndex(p.index); p.to != nil {
			inner = convert(to.FieldByIndex(p.to), value)
		} else if !p.isEmpty(value) {
			inner = firstValue(value)
		}
		if inner != nil && lost == nil {
			lost = append([]any{p.key}, inner...)
		}
	}
	return lost
}

// firstValue returns the path of the first value in a part of a configuration, or nil if it is an empty object.
func firstValue(value reflect.Value) []any {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct {
		return []any{}
	}
	for _, m := range shapeOf(value.Type()).members {
		if field := value.FieldByIndex(m.index); !m.isEmpty(field) {
			if inner := firstValue(field); inner != nil {
				return append([]any{m.key}, inner...)
			}
		}
	}
	return nil
}
