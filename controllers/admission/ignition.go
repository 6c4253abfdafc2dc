package admission

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// maxExtraSize is how large the config of one Machine may be, in bytes of JSON: it goes into a Secret, beside all else
// that is in there.
const maxExtraSize = 256 << 10

// validateIgnition checks the config or the butane below parent: it must have limit bytes at most, be readable and,
// which guard says, take over nothing of Poolboot's. The schema limits the bytes of Butane, which is text, but can't
// those of an object.
func validateIgnition(config *runtime.RawExtension, butane string, limit int, guard func(ignition.Config) error, parent *field.Path) field.ErrorList {
	switch {
	case config != nil && len(config.Raw) > limit:
		return field.ErrorList{field.TooLong(parent.Child("config"), field.OmitValueType{}, limit)}
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
