package kubelet

import (
	"errors"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// maxErrors is the maximum number of mistakes in one result.
const maxErrors = 20

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
		wrong := append(nullsIn(fields[name], at.Child(name)), mistakesIn(map[string]any{name: fields[name]}, at)...)
		if errs = append(errs, wrong...); len(errs) > maxErrors {
			return nil, errs[:maxErrors]
		}
		if len(wrong) > 0 {
			delete(fields, name)
		}
	}
	return fields, errs
}

// nullsIn returns an error for each null in a value.
func nullsIn(value any, at *field.Path) (errs field.ErrorList) {
	switch value := value.(type) {
	case nil:
		return field.ErrorList{field.Required(at, "null is not a value: set a value, or remove the field")}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			errs = append(errs, nullsIn(value[key], at.Child(key))...)
		}
	case []any:
		for i, element := range value {
			errs = append(errs, nullsIn(element, at.Index(i))...)
		}
	}
	return errs
}

// besideSection is the field that OpenShift's KubeletConfigs and Poolboot's pools have beside a section.
const besideSection = "autoSizingReserved"

// mistakesIn returns an error for each part of a section that the Kubernetes type does not accept.
func mistakesIn(section map[string]any, at *field.Path) (errs field.ErrorList) {
	for _, mistake := range ignition.FindMistakes(section, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), false) {
		place := field.NewPath(strings.TrimPrefix(at.String()+"."+mistake.Path, "<nil>."))
		if !mistake.Unknown {
			errs = append(errs, field.TypeInvalid(place, field.OmitValueType{}, mistake.Message))
			continue
		}
		if mistake.Path == besideSection {
			mistake.Place = strings.TrimSuffix(at.String(), path.Ext(at.String())) + "." + besideSection
		}
		errs = append(errs, field.Invalid(place, field.OmitValueType{}, "a "+Kind+" has no such field: "+mistake.Correct()))
	}
	return errs
}

func strictErrors(found []error, at *field.Path, why string) (errs field.ErrorList) {
	for _, strict := range found {
		place := at
		if named, ok := errors.AsType[kjson.FieldError](strict); ok {
			place = field.NewPath(at.String() + "." + named.FieldPath())
		}
		errs = append(errs, field.Invalid(place, field.OmitValueType{}, why))
	}
	return errs
}
