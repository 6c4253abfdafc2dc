package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
// server and the webhook would refuse without its mistakes. Left out are errors that may only follow from a mistake.
func (e *fieldsError) findOthers(kind schema.GroupVersionKind, raw []byte) (others field.ErrorList) {
	var written map[string]any
	typed, err := Scheme().New(kind)
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(raw, &written) != nil {
		return nil
	}
	object := typed.(client.Object)
	absent := e.removeMistakes(written)
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
		return e.isAbout(err.Field) || absent.explain(err.Field, err.Detail, err.Type == field.ErrorTypeRequired)
	})
}

// isAbout reports whether an error is about a field that this one is about too.
func (e *fieldsError) isAbout(path string) bool {
	return slices.ContainsFunc(e.errs, func(known *field.Error) bool { return known.Field == path })
}

// absent are the paths of fields that an object does not have because of a mistake.
type absent struct {
	// removed had values of a wrong type, and misspelled have another name.
	removed, misspelled [][]string
}

// removeMistakes removes the values of a wrong type from an object.
func (e *fieldsError) removeMistakes(written map[string]any) (from absent) {
	for _, mistake := range e.mistakes {
		path := pathSegments(mistake.Path)
		switch {
		case !mistake.Unknown:
			depth, _ := removeField(written, path)
			from.removed = append(from.removed, path[:depth])
		case mistake.Nearest != "":
			from.misspelled = append(from.misspelled, append(slices.Clone(path[:len(path)-1]), mistake.Nearest))
		}
	}
	return from
}

// explain reports whether an error may only follow from a mistake: it is about the field of a wrong type, the field
// that a wrong name stands for, or an object around one of these and names it.
func (a absent) explain(path, detail string, isRequired bool) bool {
	at := pathSegments(path)
	isAround := func(path []string) bool {
		return len(at) < len(path) && slices.Equal(at, path[:len(at)]) &&
			(strings.Contains(detail, path[len(path)-1]) || strings.HasSuffix(detail, " properties"))
	}
	return slices.ContainsFunc(a.removed, func(path []string) bool {
		return isAround(path) || len(at) >= len(path) && slices.Equal(at[:len(path)], path)
	}) ||
		slices.ContainsFunc(a.misspelled, func(path []string) bool {
			return isAround(path) || slices.Equal(at, path) && isRequired
		})
}

// refusedObject is an object of OpenShift's with values of a wrong type.
type refusedObject struct {
	kind schema.GroupVersionKind
	name string
	at   place
	raw  []byte
	why  *fieldsError
}

// JudgeRests returns what else is wrong with OpenShift's objects that have values of a wrong type. It has each judged
// without these values, as if it was the only object of the files.
func (o *Objects) JudgeRests(judge func(*Objects) []error) (errs []error) {
	for _, refused := range o.misread {
		var written map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts(refused.raw, &written) != nil {
			continue
		}
		from := refused.why.removeMistakes(written)
		rest, err := json.Marshal(written)
		alone := &Objects{notes: io.Discard, readKubeletConfigs: o.readKubeletConfigs, readPolicies: o.readPolicies, readRuntimeConfigs: o.readRuntimeConfigs}
		if err != nil || alone.addObject(refused.kind, refused.at, rest) != nil {
			continue // a list or a text in place of an object
		}
		about := fmt.Sprintf("%s %q: ", refused.kind.Kind, refused.name)
		for _, err := range InOrder(judge(alone)...) {
			text := err.Error()
			if located := (*problem)(nil); errors.As(err, &located) {
				text = located.err.Error()
			}
			path := fieldOf(text)
			if strings.HasPrefix(text, about) && !refused.why.isAbout(path) && !from.explain(path, text, false) {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// IsMisread reports whether an object of OpenShift's has values of a wrong type.
func (o *Objects) IsMisread(kind, name string) bool {
	return slices.ContainsFunc(o.misread, func(refused refusedObject) bool { return refused.kind.Kind == kind && refused.name == name })
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
