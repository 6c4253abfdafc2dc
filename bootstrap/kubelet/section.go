// Package kubelet reads what a MachineConfigPool says about its kubelets: fields of Kubernetes' KubeletConfiguration,
// typed and checked as far as that can be done without a kubelet, and without those that are not a pool's to say. It is
// pure, and knows nothing of pools.
package kubelet

import (
	"encoding/json"
	"fmt"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxSize is how many bytes of JSON a section may have: many times what all fields of a KubeletConfiguration take.
const maxSize = 64 << 10

// Kind and APIVersion of what a section is a part of. A section names both.
const Kind = "KubeletConfiguration"

// APIVersion is the one that Poolboot knows.
var APIVersion = kubeletv1beta1.SchemeGroupVersion.String()

// Section is a part of a KubeletConfiguration. The zero value says nothing.
type Section struct {
	// fields are those that were given and no others: in a KubeletConfiguration that is written out whole, those that
	// were not are zero, and would take the place of what is set elsewhere.
	fields map[string]any
}

// Parse reads a section in JSON. Errors name each field that is unknown, of the wrong type, there twice, null, or not a
// pool's to set, and an apiVersion or kind that is missing or another; their paths start with at. What the values are
// is a matter of Check.
func Parse(raw []byte, at *field.Path) (Section, field.ErrorList) {
	if len(raw) > maxSize {
		return Section{}, field.ErrorList{field.TooLong(at, field.OmitValueType{}, maxSize)}
	}
	fields, errs := read(raw, at)
	if len(errs) > 0 {
		return Section{}, errs
	}
	errs = append(errs, typed(fields, "apiVersion", APIVersion, at), typed(fields, "kind", Kind, at))
	errs = slices.DeleteFunc(errs, func(err *field.Error) bool { return err == nil })
	if errs = append(errs, refused(fields, at)...); len(errs) > 0 {
		return Section{}, errs
	}
	return Section{fields: fields}, nil
}

// typed takes a field that says of which type a section is, and returns what is wrong with it.
func typed(fields map[string]any, name, want string, at *field.Path) *field.Error {
	value, has := fields[name]
	delete(fields, name)
	switch {
	case !has:
		return field.Required(at.Child(name), "set it to "+want)
	case value != want:
		return field.NotSupported(at.Child(name), value, []string{want})
	}
	return nil
}

// IsEmpty says whether a section says nothing.
func (s Section) IsEmpty() bool { return len(s.fields) == 0 }

// Over lays a section on top of another, as the kubelet merges drop-ins: objects key by key, everything else as a
// whole.
func (s Section) Over(base Section) (Section, error) {
	under, err := base.json()
	if err != nil {
		return Section{}, err
	}
	over, err := s.json()
	if err != nil {
		return Section{}, err
	}
	merged, err := jsonpatch.MergePatch(under, over) // as the kubelet does
	if err != nil {
		return Section{}, err
	}
	var out Section
	return out, kjson.UnmarshalCaseSensitivePreserveInts(merged, &out.fields)
}

// DropIn is a section as a file of the kubelet's drop-in directory, under a comment that says where it is from.
func (s Section) DropIn(from string) ([]byte, error) {
	whole := map[string]any{"apiVersion": APIVersion, "kind": Kind}
	for name, value := range s.fields {
		whole[name] = value
	}
	text, err := yaml.Marshal(whole)
	return fmt.Appendf(nil, "# From %s. Change it there.\n%s", from, text), err
}

func (s Section) json() ([]byte, error) {
	if s.fields == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(s.fields)
}
