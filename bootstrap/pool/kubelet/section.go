// Package kubelet parses the kubelet section of a MachineConfigPool: fields of a KubeletConfiguration of Kubernetes. It
// checks their types, and their values as far as this is possible without a kubelet, and refuses the fields that a pool
// cannot set. It is pure, and does not depend on pools.
package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxSize is the maximum size of a section in bytes of JSON. All fields of a KubeletConfiguration need much less.
const maxSize = 64 << 10

// Kind is the kind of a section. A section must set it, together with APIVersion.
const Kind = "KubeletConfiguration"

// APIVersion is the only apiVersion that Poolboot supports.
var APIVersion = kubeletv1beta1.SchemeGroupVersion.String()

// Section is a part of a KubeletConfiguration. The zero value is empty.
type Section struct {
	// fields are only the fields that are set. A complete KubeletConfiguration would have zero values for all other
	// fields, and would override what is set elsewhere.
	fields map[string]any
}

// Parse parses a section in JSON. It returns an error for each field that is unknown, has the wrong type, is duplicate,
// is null, or cannot be set by a pool, and for a missing or wrong apiVersion or kind. The paths of the errors start
// with at. Parse does not check values: see Check. With errors, the section has the fields of the right type.
func Parse(raw []byte, at *field.Path) (Section, field.ErrorList) {
	if len(raw) > maxSize {
		return Section{}, field.ErrorList{field.TooLong(at, field.OmitValueType{}, maxSize)}
	}
	fields, errs := read(raw, at)
	if fields == nil {
		return Section{}, errs
	}
	errs = slices.Concat(errs, takeType(fields, "apiVersion", APIVersion, at), takeType(fields, "kind", Kind, at), checkReserved(fields, at))
	return Section{fields: fields}, errs
}

// takeType removes a field that identifies the type of a section, and returns an error if its value is wrong.
func takeType(fields map[string]any, name, want string, at *field.Path) field.ErrorList {
	value, ok := fields[name]
	delete(fields, name)
	switch {
	case !ok:
		return field.ErrorList{field.Required(at.Child(name), "set it to "+want)}
	case value != want:
		return field.ErrorList{field.NotSupported(at.Child(name), value, []string{want})}
	}
	return nil
}

// IsEmpty reports whether a section sets no fields.
func (s Section) IsEmpty() bool { return len(s.fields) == 0 }

// Has reports whether a section sets a field, also to an empty value.
func (s Section) Has(name string) bool {
	_, has := s.fields[name]
	return has
}

// Keys returns the keys of a field that is an object, in order.
func (s Section) Keys(name string) []string {
	object, _ := s.fields[name].(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

// MergeOver merges a section over another, as the kubelet merges drop-ins: objects by key, and all other values as a
// whole.
func (s Section) MergeOver(base Section) (Section, error) {
	original, err := base.json()
	if err != nil {
		return Section{}, err
	}
	patch, err := s.json()
	if err != nil {
		return Section{}, err
	}
	merged, err := jsonpatch.MergePatch(original, patch) // as the kubelet does
	if err != nil {
		return Section{}, err
	}
	var out Section
	return out, kjson.UnmarshalCaseSensitivePreserveInts(merged, &out.fields)
}

// DropIn returns a section as a file for the drop-in directory of the kubelet. A comment at the start names the source
// of the section.
func (s Section) DropIn(from string) ([]byte, error) {
	config := map[string]any{"apiVersion": APIVersion, "kind": Kind}
	maps.Copy(config, s.fields)
	text, err := yaml.Marshal(config)
	return fmt.Appendf(nil, "# From %s. Change it there.\n%s", from, text), err
}

func (s Section) json() ([]byte, error) {
	if s.fields == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(s.fields)
}
