package convert

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// editIgnition lets a function change a MachineConfig's Ignition as it was written, in any spec version. The function
// reports whether it changed something. Malformed Ignition is not changed: checkConfig refuses it.
func editIgnition(config *poolv1.MachineConfig, edit func(document map[string]any) bool) {
	if config.Spec.Config == nil {
		return
	}
	var document map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(config.Spec.Config.Raw, &document); err != nil || !edit(document) {
		return
	}
	raw, err := json.Marshal(document)
	utilruntime.Must(err)
	config.Spec.Config = &runtime.RawExtension{Raw: raw}
}

// itemsAt returns the objects of a list in a document.
func itemsAt(document map[string]any, path ...string) (items []map[string]any) {
	list, _, _ := unstructured.NestedFieldNoCopy(document, path...)
	values, _ := list.([]any)
	for _, value := range values {
		if item, isObject := value.(map[string]any); isObject {
			items = append(items, item)
		}
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
