package input

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// firstCopy is where an object was read first.
type firstCopy struct {
	at place
	// essence is what counts of an object of OpenShift's; empty for other kinds.
	essence string
}

// give records where an object is. It returns false for one that is not the first of its kind and name, if such a copy
// is left out or refused.
func (o *Objects) give(kind schema.GroupVersionKind, name string, at place, raw []byte) (isFirst bool, err error) {
	if o.places == nil {
		o.places, o.given = map[string]place{}, map[string]firstCopy{}
	}
	key, what := givenKey(kind, name), ""
	if kind == OpenShiftPoolKind || kind == OpenShiftConfigKind || slices.Contains(o.settings, kind) {
		what = essence(raw)
	}
	switch first, isCopy := o.given[key]; {
	case !isCopy:
		o.given[key] = firstCopy{at, what}
	case o.skipCopies && name != "" && what != "" && what == first.essence:
		_, err := fmt.Fprintf(o.notes, "note: %s: %s %q is left out: it is the same as in %s\n", at.of("metadata"), kind.Kind, name, first.at.of("metadata"))
		return false, err
	case slices.Contains(o.settings, kind) && name != "":
		return false, copyError(kind.Kind, name, at, first.at)
	}
	o.places[kind.Kind+" "+name] = at
	return true, nil
}

// FirstCopies returns the first object of each name, of objects of one kind that were read, and an error for each
// further one, with both places. Problems of such an object are then located in the first.
func FirstCopies[T client.Object](o *Objects, all []T) (first []T, refused []error) {
	byName := map[string]place{}
	for _, object := range all {
		kind, name := object.GetObjectKind().GroupVersionKind().Kind, object.GetName()
		at := o.items[slices.IndexFunc(o.items, func(item Item) bool { return item.Object == client.Object(object) })].at
		if kept, given := byName[name]; given {
			refused = append(refused, copyError(kind, name, at, kept))
			continue
		}
		byName[name], o.places[kind+" "+name] = at, at
		first = append(first, object)
	}
	return first, refused
}

// copyError returns the error for an object whose kind and name another one has.
func copyError(kind, name string, at, first place) error {
	return at.of("metadata").errorf("%s %q is given twice: remove it, or the one in %s", kind, name, first.of("metadata"))
}

// essence returns what counts of an object of OpenShift's: not what its cluster added. It is empty if the object can't
// be read.
func essence(raw []byte) string {
	var object struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec any `json:"spec"`
	}
	if json.Unmarshal(raw, &object) != nil {
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
	return given && !slices.ContainsFunc(o.items, func(item Item) bool { return item.Kind == kind && item.GetName() == name })
}
