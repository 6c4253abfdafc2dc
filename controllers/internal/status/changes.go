package status

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reportedTime is the field of an address that has another owner than the address.
const reportedTime = "reportedTime"

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
			for _, kind := range differences(byKey(oldStatus[key], "type"), byKey(newStatus[key], "type")) {
				changed.Insert(key + "[" + kind + "]")
			}
		case "boot", "update":
			old, current := asMap(oldStatus[key]), asMap(newStatus[key])
			for _, field := range differences(old, current) {
				path := key + "." + field
				if field == "addresses" && onlyReported(byKey(old[field], "address"), byKey(current[field], "address")) {
					path += "[]." + reportedTime
				}
				changed.Insert(path)
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

// byKey returns the entries of a list by the field that identifies them.
func byKey(list any, key string) map[string]any {
	entries, _ := list.([]any)
	indexed := map[string]any{}
	for _, entry := range entries {
		name, _ := asMap(entry)[key].(string)
		indexed[name] = entry
	}
	return indexed
}

// onlyReported reports whether two lists of addresses differ only in when the addresses were reported.
func onlyReported(before, after map[string]any) bool {
	for _, address := range differences(before, after) {
		fields := differences(asMap(before[address]), asMap(after[address]))
		if before[address] == nil || after[address] == nil || !slices.Equal(fields, []string{reportedTime}) {
			return false
		}
	}
	return true
}
