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
// server and the webhook would refuse without its mistakes. Left out are errors that may only follow from a mistake:
// those about the same field, about the field that a wrong name stands for, and about an object around one of these
// that name it.
func (e *fieldsError) findOthers(kind schema.GroupVersionKind, raw []byte) (others field.ErrorList) {
	var written map[string]any
	typed, err := Scheme().New(kind)
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(raw, &written) != nil {
		return nil
	}
	object := typed.(client.Object)
	var removed, misspelled [][]string
	for _, mistake := range e.mistakes {
		path := pathSegments(mistake.Path)
		switch {
		case !mistake.Unknown:
			depth, _ := removeField(written, path)
			removed = append(removed, path[:depth])
		case mistake.Nearest != "":
			misspelled = append(misspelled, append(slices.Clone(path[:len(path)-1]), mistake.Nearest))
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
	return slices.DeleteFunc(append(others, validateWritten(kind, written, object)...), func(err *field.Error) bool {
		at := pathSegments(err.Field)
		isAround := func(path []string) bool {
			return len(at) < len(path) && slices.Equal(at, path[:len(at)]) &&
				(strings.Contains(err.Detail, path[len(path)-1]) || strings.HasSuffix(err.Detail, " properties"))
		}
		return slices.ContainsFunc(e.errs, func(known *field.Error) bool { return known.Field == err.Field }) ||
			slices.ContainsFunc(removed, func(path []string) bool {
				return isAround(path) || len(at) >= len(path) && slices.Equal(at[:len(path)], path)
			}) ||
			slices.ContainsFunc(misspelled, func(path []string) bool {
				return isAround(path) || slices.Equal(at, path) && err.Type == field.ErrorTypeRequired
			})
	})
}

// pathSegments returns the keys and the indices of a path.
func pathSegments(path string) (all []string) {
	for _, segment := range segments.FindAllString(path, -1) {
		all = append(all, strings.Trim(segment, "[]"))
	}
	return all
}

// removeField removes the value at a path with what is empty without it, and a whole list of which it is a part. It
// returns how much of the path leads to what was removed, and whether the value has no other parts.
func removeField(from any, path []string) (depth int, isEmpty bool) {
	if len(path) == 0 {
		return 0, true
	}
	switch of := from.(type) {
	case map[string]any:
		inner, isEmpty := removeField(of[path[0]], path[1:])
		if !isEmpty {
			return inner + 1, false
		}
		delete(of, path[0])
		return 1, len(of) == 0
	case []any:
		index, err := strconv.Atoi(path[0])
		if err != nil || index >= len(of) {
			return 0, false
		}
		inner, isEmpty := removeField(of[index], path[1:])
		return inner + 1, isEmpty
	}
	return 0, false
}
