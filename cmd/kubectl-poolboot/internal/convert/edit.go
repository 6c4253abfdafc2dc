package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// editIgnition lets a function change a MachineConfig's Ignition as it was written, in any spec version. The function
// reports whether it changed something. It sees keys as Ignition's parser does, which ignores their case. Malformed
// Ignition is not changed: checkConfig refuses it.
func editIgnition(config *poolv1.MachineConfig, edit func(document map[string]any) bool) {
	if config.Spec.Config == nil {
		return
	}
	var document map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(config.Spec.Config.Raw, &document); err != nil {
		return
	}
	correctCase(document)
	if !edit(document) {
		return
	}
	raw, err := json.Marshal(document)
	utilruntime.Must(err)
	config.Spec.Config = &runtime.RawExtension{Raw: raw}
}

// editedKeys are the keys in Ignition that functions for editIgnition use.
var editedKeys = []string{"storage", "files", "directories", "links", "path", "contents", "source", "compression", "systemd", "units", "name", "dropins"}

// correctCase gives keys in Ignition the case of editedKeys. Keys that differ only in case are kept, and refused by
// checkConfig.
func correctCase(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			correctCase(item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(part)) {
			value := part[key]
			correctCase(value)
			i := slices.IndexFunc(editedKeys, func(known string) bool { return strings.EqualFold(known, key) })
			if i < 0 {
				continue
			}
			if _, isTwice := part[editedKeys[i]]; !isTwice {
				delete(part, key)
				part[editedKeys[i]] = value
			}
		}
	}
}

// itemsAt returns the objects of a list in a document, each at its index: nil stands for an item that is no object.
func itemsAt(document map[string]any, path ...string) (items []map[string]any) {
	list, _, _ := unstructured.NestedFieldNoCopy(document, path...)
	values, _ := list.([]any)
	for _, value := range values {
		item, _ := value.(map[string]any)
		items = append(items, item)
	}
	return items
}

// editDropins lets a function change the contents of each drop-in of a MachineConfig. It gets the path of the contents.
func editDropins(config *poolv1.MachineConfig, edit func(at, unit, dropin, contents string) string) {
	editIgnition(config, func(document map[string]any) (changed bool) {
		for i, unit := range itemsAt(document, "systemd", "units") {
			unitName, _ := unit["name"].(string)
			for j, dropin := range itemsAt(unit, "dropins") {
				name, _ := dropin["name"].(string)
				before, _ := dropin["contents"].(string)
				at := fmt.Sprintf("spec.config.systemd.units[%d].dropins[%d].contents", i, j)
				if after := edit(at, unitName, name, before); after != before {
					dropin["contents"] = after
					changed = true
				}
			}
		}
		return changed
	})
}
