package validation

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// MaxExtraSize is the maximum size of the extra config of one Machine, in bytes of JSON. It is part of a Secret that
// has other content too.
const MaxExtraSize = 256 << 10

// Ignition validates the field config or butane of parent: it must be valid, and the guard must accept it. It
// also limits the size of config in bytes. The schema limits the size of Butane, but cannot limit the size of an
// object.
func Ignition(config *runtime.RawExtension, butaneText string, limit int, guard func(ignition.Config) error, parent *field.Path) field.ErrorList {
	switch {
	case config != nil && len(config.Raw) > limit:
		return field.ErrorList{field.TooLong(parent.Child("config"), field.OmitValueType{}, limit)}
	case config != nil && len(config.Raw) > 0:
		path := parent.Child("config")
		parsed, err := ignition.Parse(config.Raw)
		_, lost := ignition.CheckKeys(config.Raw)
		errs := append(parseErrors(withoutLines(err), path), parseErrors(lost, path)...)
		if err == nil {
			errs = append(errs, guardErrors(guard(parsed), path)...)
		}
		return errs
	case butaneText != "":
		path := parent.Child("butane")
		parsed, err := butane.Parse(butaneText)
		if err == nil {
			return guardErrors(guard(parsed), path)
		}
		return parseErrors(err, path)
	}
	return nil
}

// KeyWarnings returns a warning for each key of config that Ignition ignores without a loss.
func KeyWarnings(config *runtime.RawExtension, parent *field.Path) (warnings []string) {
	if config == nil || len(config.Raw) > pool.MaxSize {
		return nil
	}
	ignored, _ := ignition.CheckKeys(config.Raw) // Ignition returns the error
	for _, problem := range ignored {
		warnings = append(warnings, childPath(parent.Child("config"), problem.Path).String()+": "+problem.Message)
	}
	return warnings
}

// withoutLines returns the error of a document within an object without lines: the document of the API server has one,
// and in a file they are not the file's.
func withoutLines(err error) error {
	if malformed, ok := errors.AsType[*ignition.ParseError](err); ok {
		for i := range malformed.Problems {
			malformed.Problems[i].Line = 0
		}
	}
	return err
}

// parseErrors converts the error of a parser to field errors.
func parseErrors(err error, path *field.Path) (errs field.ErrorList) {
	var malformed *ignition.ParseError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &malformed):
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	for _, problem := range malformed.Problems {
		at := childPath(path, problem.Path)
		problem.Path = ""
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, problem.String()))
	}
	return errs
}

// guardErrors returns an error for each entry that a guard refuses.
func guardErrors(err error, path *field.Path) (errs field.ErrorList) {
	if guarded, ok := errors.AsType[*ignition.GuardError](err); ok {
		for _, entry := range guarded.Entries {
			errs = append(errs, field.Forbidden(childPath(path, entry.Path), entry.Why))
		}
	}
	return errs
}

// childPath appends a path within a document to the path of the document.
func childPath(path *field.Path, child string) *field.Path {
	if child == "" {
		return path
	}
	return field.NewPath(path.String() + "." + child)
}
