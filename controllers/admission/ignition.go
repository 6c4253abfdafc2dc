package admission

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// validateIgnition checks the config or the butane below parent: it must be readable and, which guard says, take over nothing
// of Poolboot's.
func validateIgnition(config *runtime.RawExtension, butane string, guard func(ignition.Config) error, parent *field.Path) field.ErrorList {
	switch {
	case config != nil && len(config.Raw) > 0:
		parsed, err := ignition.Parse(config.Raw)
		return ignitionErrors(parsed, err, guard, parent.Child("config"))
	case butane != "":
		parsed, err := ignition.ParseButane(butane)
		return ignitionErrors(parsed, err, guard, parent.Child("butane"))
	}
	return nil
}

func ignitionErrors(parsed ignition.Config, err error, guard func(ignition.Config) error, path *field.Path) field.ErrorList {
	var malformed *ignition.ParseError
	if errors.As(err, &malformed) {
		var errs field.ErrorList
		for _, problem := range malformed.Problems {
			place := within(path, problem.Path)
			problem.Path = ""
			if problem.Line == 1 {
				problem.Line = 0 // an API server's JSON is one line
			}
			errs = append(errs, field.Invalid(place, field.OmitValueType{}, problem.String()))
		}
		return errs
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	return guardErrors(guard(parsed), path)
}

// guardErrors names each entry that the guard refuses by its place below path.
func guardErrors(err error, path *field.Path) (errs field.ErrorList) {
	var guarded *ignition.GuardError
	if errors.As(err, &guarded) {
		for _, entry := range guarded.Entries {
			errs = append(errs, field.Forbidden(within(path, entry.Path), entry.Why))
		}
	}
	return errs
}

// within appends a place in a document to the document's field.
func within(path *field.Path, place string) *field.Path {
	if place == "" {
		return path
	}
	return field.NewPath(path.String() + "." + place)
}
