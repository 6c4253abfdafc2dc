package status

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reportedTime is the field of an address that has another owner than the address.
const reportedTime = "reportedTime"

// changes returns the paths in the status that differ between two versions of an object, sorted. They are the keys of
// parts.
func changes(before, after client.Object) ([]string, error) {
	was, err := statusOf(before)
	if err != nil {
		return nil, err
	}
	now, err := statusOf(after)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, key := range differences(was, now) {
		switch key {
		case "conditions":
			for _, kind := range differences(byKey(was[key], "type"), byKey(now[key], "type")) {
				found[key+"["+kind+"]"] = true
			}
		case "boot":
			old, _ := was[key].(map[string]any)
			current, _ := now[key].(map[string]any)
			for _, field := range differences(old, current) {
				path := key + "." + field
				if field == "addresses" && onlyReported(byKey(old[field], "address"), byKey(current[field], "address")) {
					path += "[]." + reportedTime
				}
				found[path] = true
			}
		default:
			found[key] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// statusOf returns the status as the API has it.
func statusOf(object client.Object) (map[string]any, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	decoded := struct {
		Status map[string]any `json:"status"`
	}{}
	err = json.Unmarshal(encoded, &decoded)
	return decoded.Status, err
}

// differences returns the keys whose values differ.
func differences(was, now map[string]any) (keys []string) {
	for key := range was {
		if _, found := now[key]; !found {
			keys = append(keys, key)
		}
	}
	for key, value := range now {
		if !reflect.DeepEqual(was[key], value) {
			keys = append(keys, key)
		}
	}
	return keys
}

// byKey returns the entries of a list by the field that identifies them.
func byKey(list any, key string) map[string]any {
	entries, _ := list.([]any)
	found := map[string]any{}
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		name, _ := fields[key].(string)
		found[name] = entry
	}
	return found
}

// onlyReported reports whether two lists of addresses differ only in when the addresses were reported.
func onlyReported(was, now map[string]any) bool {
	without := func(addresses map[string]any) map[string]any {
		bare := map[string]any{}
		for address, entry := range addresses {
			fields := maps.Clone(entry.(map[string]any))
			delete(fields, reportedTime)
			bare[address] = fields
		}
		return bare
	}
	return reflect.DeepEqual(without(was), without(now))
}
