package status

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changes returns the paths in the status that differ between two versions of an object, sorted. They are the keys of
// parts.
func changes(before, after client.Object) ([]string, error) {
	oldStatus, err := statusOf(before)
	if err != nil {
		return nil, err
	}
	newStatus, err := statusOf(after)
	if err != nil {
		return nil, err
	}
	changed := sets.New[string]()
	for _, key := range differences(oldStatus, newStatus) {
		switch key {
		case "conditions":
			for _, kind := range differences(conditionsByType(oldStatus[key]), conditionsByType(newStatus[key])) {
				changed.Insert(key + "[" + kind + "]")
			}
		case "boot", "update":
			for _, field := range differences(asMap(oldStatus[key]), asMap(newStatus[key])) {
				changed.Insert(key + "." + field)
			}
		default:
			changed.Insert(key)
		}
	}
	return sets.List(changed), nil
}

// statusOf returns the status as the API has it.
func statusOf(object client.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return asMap(content["status"]), err
}

// asMap returns an object in JSON, and nil if the value is not an object.
func asMap(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}

// differences returns the keys whose values differ.
func differences(before, after map[string]any) []string {
	return slices.DeleteFunc(sets.KeySet(before).Union(sets.KeySet(after)).UnsortedList(), func(key string) bool {
		return reflect.DeepEqual(before[key], after[key])
	})
}

// conditionsByType returns the conditions in a list by their type.
func conditionsByType(list any) map[string]any {
	entries, _ := list.([]any)
	indexed := map[string]any{}
	for _, entry := range entries {
		kind, _ := asMap(entry)["type"].(string)
		indexed[kind] = entry
	}
	return indexed
}
