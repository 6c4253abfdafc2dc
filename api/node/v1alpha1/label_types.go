package v1alpha1

import "maps"

// Labels are labels that Nodes are registered with.
//
// +kubebuilder:object:generate=false
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:validation:XValidation:rule="self.all(key, !format.qualifiedName().validate(key).hasValue())",message="each key must be a label key, such as example.com/rack: at most 63 letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before them"
// +kubebuilder:validation:XValidation:rule="self.all(key, !format.labelValue().validate(self[key]).hasValue())",message="each value must be a label value: letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
// +kubebuilder:validation:XValidation:rule="!('metal3.io/uuid' in self)",message="Poolboot sets metal3.io/uuid to the UID of the Node's BareMetalHost: leave it out",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!('node-role.kubernetes.io/control-plane' in self)",message="only the control plane provider sets it: leave node-role.kubernetes.io/control-plane out",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!('node-role.kubernetes.io/master' in self)",message="only the control plane provider sets it: leave node-role.kubernetes.io/master out",reason=FieldValueForbidden
type Labels map[string]LabelValue

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue = string // The alias has a maximum length, from which the API server estimates the cost of rules about values.

// DeepCopyInto copies the labels.
func (in *Labels) DeepCopyInto(out *Labels) { *out = maps.Clone(*in) }

// DeepCopy copies the labels.
func (in *Labels) DeepCopy() *Labels {
	if in == nil {
		return nil
	}
	out := new(Labels)
	in.DeepCopyInto(out)
	return out
}
