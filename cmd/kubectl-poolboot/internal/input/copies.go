package input

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FirstCopies returns the first object of each name, of objects of one kind that were read, and an error for each
// further one, with both places. Problems of such an object are then located in the first.
func FirstCopies[T client.Object](o *Objects, all []T) (first []T, refused []error) {
	byName := map[string]client.Object{}
	for _, object := range all {
		kind, at := object.GetObjectKind().GroupVersionKind().Kind, o.placeOfItem[object]
		if kept, given := byName[object.GetName()]; given {
			refused = append(refused, copyError(kind, object.GetName(), at, o.placeOfItem[kept]))
			continue
		}
		byName[object.GetName()] = object
		o.places[kind+" "+object.GetName()] = at
		first = append(first, object)
	}
	return first, refused
}

// readsOnce reports whether the second object of a kind and name is refused when it is read. For others, see
// FirstCopies.
func (o *Objects) readsOnce(kind schema.GroupVersionKind) bool {
	return kind == OpenShiftKubeletKind && o.readKubeletConfigs || kind == OpenShiftPolicyKind && o.readPolicies ||
		slices.Contains(runtimeKinds, kind) && o.readRuntimeConfigs
}

// copyError returns the error for an object whose kind and name another one has.
func copyError(kind, name string, at, first place) error {
	return at.of("metadata").errorf("%s %q is given twice: remove it, or the one in %s", kind, name, first.of("metadata"))
}

// essence returns what counts of an object of OpenShift's: not what its cluster added. It is empty for other kinds.
func essence(kind schema.GroupVersionKind, raw []byte) string {
	var object struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec any `json:"spec"`
	}
	if kind != OpenShiftPoolKind && kind != OpenShiftConfigKind && kind != OpenShiftKubeletKind && kind != OpenShiftPolicyKind && !slices.Contains(runtimeKinds, kind) ||
		json.Unmarshal(raw, &object) != nil {
		return ""
	}
	delete(object.Metadata.Annotations, corev1.LastAppliedConfigAnnotation)
	text, err := json.Marshal(object) // sorts keys
	utilruntime.Must(err)             // it was read from JSON
	return string(text)
}

// givenKey is the key of an object in Objects.given.
func givenKey(kind schema.GroupVersionKind, name string) string { return kind.String() + " " + name }

// IsRefused reports whether the files contain an object that can't be read.
func (o *Objects) IsRefused(kind schema.GroupVersionKind, name string) bool {
	_, given := o.given[givenKey(kind, name)]
	return given && !slices.ContainsFunc(o.items, func(item client.Object) bool {
		return item.GetObjectKind().GroupVersionKind() == kind && item.GetName() == name
	})
}
