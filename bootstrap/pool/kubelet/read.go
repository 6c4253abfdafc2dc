package kubelet

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	// maxDepth is the maximum nesting of a section. A KubeletConfiguration has half of it.
	maxDepth = 12
	// maxErrors is the maximum number of mistakes in one result.
	maxErrors = 20
)

// read decodes a section. Each of its fields must exist in the Kubernetes type; those with errors are left out, unless
// there are too many.
func read(raw []byte, at *field.Path) (map[string]any, field.ErrorList) {
	var fields map[string]any
	duplicates, err := kjson.UnmarshalStrict(raw, &fields, kjson.DisallowDuplicateFields)
	switch {
	case err != nil || fields == nil:
		return nil, field.ErrorList{field.TypeInvalid(at, field.OmitValueType{}, "must be an object with fields of a "+Kind)}
	case len(duplicates) > 0:
		return nil, strictErrors(duplicates, at, "is a duplicate: remove one")
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		whole := func(value any) any { return map[string]any{name: value} }
		wrong := typeErrors(fields[name], whole, at.Child(name), maxDepth)
		if errs = append(errs, wrong...); len(errs) > maxErrors {
			return nil, errs[:maxErrors]
		}
		if len(wrong) > 0 {
			delete(fields, name)
		}
	}
	return fields, errs
}

// typeErrors returns an error for each innermost part of a value that the Kubernetes type does not accept. whole
// returns the section that has only the given part, at its position.
func typeErrors(value any, whole func(any) any, at *field.Path, depth int) (errs field.ErrorList) {
	if depth == 0 {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "no field of a "+Kind+" has so many levels: remove it")}
	}
	unknown, err := decode(whole(value))
	switch value := value.(type) {
	case nil:
		return field.ErrorList{field.Required(at, "null is not a value: set a value, or remove the field")}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner := func(part any) any { return whole(map[string]any{key: part}) }
			errs = append(errs, typeErrors(value[key], inner, at.Child(key), depth-1)...)
		}
	case []any:
		for i, element := range value {
			inner := func(part any) any { return whole([]any{part}) }
			errs = append(errs, typeErrors(element, inner, at.Index(i), depth-1)...)
		}
	}
	switch {
	case len(errs) > 0:
		return errs
	case err != nil:
		return field.ErrorList{field.TypeInvalid(at, field.OmitValueType{}, describeMismatch(whole(value), err))}
	case len(unknown) > 0:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "a "+Kind+" has no such field: correct its name"+nearestName(whole(value))+", or remove it")}
	}
	return nil
}

// decode returns the fields that the Kubernetes type does not have, or an error if the type does not accept the value.
func decode(value any) (unknown []error, err error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return kjson.UnmarshalStrict(raw, &kubeletv1beta1.KubeletConfiguration{}, kjson.DisallowUnknownFields)
}

// describeMismatch returns what a part of a section must be, by the section with only this part.
func describeMismatch(section any, err error) string {
	for _, mistake := range ignition.FindMistakes(section, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), false) {
		if !mistake.Unknown {
			return mistake.Message
		}
	}
	return err.Error()
}

// nearestName returns the name that is most similar to that of an unknown field, as a remedy, by the section with only
// this field. It is "" if none is similar.
func nearestName(section any) string {
	for _, mistake := range ignition.FindMistakes(section, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), false) {
		if mistake.Unknown && mistake.Nearest != "" {
			return " to " + mistake.Nearest
		}
	}
	return ""
}

func strictErrors(found []error, at *field.Path, why string) (errs field.ErrorList) {
	for _, strict := range found {
		place := at
		var named kjson.FieldError
		if errors.As(strict, &named) {
			place = field.NewPath(at.String() + "." + named.FieldPath())
		}
		errs = append(errs, field.Invalid(place, field.OmitValueType{}, why))
	}
	return errs
}
