package input

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FirstCopies returns the first object of each name, of objects of one kind that were read, and an error for each
// further one, with both places. Problems of such an object are then located in the first.
func FirstCopies[T client.Object](o *Objects, all []T) (first []T, refused []error) {
	byName := map[string]client.Object{}
	for _, object := range all {
		kind, at := object.GetObjectKind().GroupVersionKind().Kind, o.placeOfItem[object]
		if kept, given := byName[object.GetName()]; given {
			refused = append(refused, fmt.Errorf("%s: %s %q is given twice: remove it, or the one in %s", at.of("metadata"),
				kind, object.GetName(), o.placeOfItem[kept].of("metadata")))
			continue
		}
		byName[object.GetName()] = object
		o.places[kind+" "+object.GetName()] = at
		first = append(first, object)
	}
	return first, refused
}
