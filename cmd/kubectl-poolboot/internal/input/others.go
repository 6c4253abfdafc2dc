package input

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// findOthers returns what else is wrong with the object of Poolboot's that the error is about, by itself: what the API
// server and the webhook would refuse without its mistakes. Errors that may only follow from a mistake are left out.
func (e *fieldsError) findOthers(kind schema.GroupVersionKind, raw []byte) (others field.ErrorList) {
	var written map[string]any
	typed, err := Scheme().New(kind)
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(raw, &written) != nil {
		return nil
	}
	object := typed.(client.Object)
	for _, mistake := range e.mistakes {
		if !mistake.Unknown {
			removeField(written, pathSegments(mistake.Path))
		}
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(written, object) != nil {
		return nil // a list or a text in place of an object
	}
	p, isPool := object.(*poolv1.MachineConfigPool)
	if isPool {
		others = checkPool(p)
		if spec, isObject := written["spec"].(map[string]any); isObject && (p.Spec.PoolRole == "" || IsControlPlane(p.Spec.PoolRole)) {
			spec["poolRole"], p.Spec.PoolRole = poolv1.RoleWorker, poolv1.RoleWorker // for the rest, which depends on a role
		}
		others = append(others, ValidatePool([]poolv1.MachineConfigPool{*p}, 0)...)
	}
	return slices.DeleteFunc(append(others, validateWritten(kind, written, object)...), e.mayCause)
}

// mayCause reports whether an error may only follow from a mistake: whether it is about the same field, about the field
// that a wrong name stands for, or about an object around one of these and names it.
func (e *fieldsError) mayCause(err *field.Error) bool {
	if slices.ContainsFunc(e.errs, func(known *field.Error) bool { return known.Field == err.Field }) {
		return true
	}
	at := pathSegments(err.Field)
	for _, mistake := range e.mistakes {
		path := pathSegments(mistake.Path)
		for len(path) > 1 && isIndex(path[len(path)-1]) { // the whole list is removed
			path = path[:len(path)-1]
		}
		if mistake.Unknown && mistake.Nearest != "" {
			path[len(path)-1] = mistake.Nearest
		}
		common := min(len(at), len(path))
		switch {
		case !slices.Equal(at[:common], path[:common]):
		case len(at) < len(path):
			if strings.Contains(err.Detail, path[len(path)-1]) || strings.HasSuffix(err.Detail, " properties") {
				return true
			}
		case !mistake.Unknown || err.Type == field.ErrorTypeRequired:
			return true
		}
	}
	return false
}

// pathSegments returns the keys and the indices of a path.
func pathSegments(path string) (all []string) {
	for _, segment := range segments.FindAllString(path, -1) {
		all = append(all, strings.Trim(segment, "[]"))
	}
	return all
}

func isIndex(segment string) bool {
	_, err := strconv.Atoi(segment)
	return err == nil
}

// removeField removes the value at a path, and the whole list if the value is an item.
func removeField(from map[string]any, path []string) {
	var value any = from
	for i, segment := range path {
		switch of := value.(type) {
		case map[string]any:
			if !slices.ContainsFunc(path[i+1:], func(rest string) bool { return !isIndex(rest) }) {
				delete(of, segment)
				return
			}
			value = of[segment]
		case []any:
			index, _ := strconv.Atoi(segment)
			if index >= len(of) {
				return
			}
			value = of[index]
		}
	}
}
