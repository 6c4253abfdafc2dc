package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Taint is a taint that Nodes are registered with. It is the core API's Taint without timeAdded, which the node
// lifecycle controller writes. A Node has at most one taint with a given key and effect.
type Taint struct {
	// key is the key of the taint, in the format of a label key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="it must be a taint key, such as example.com/dedicated"
	// +kubebuilder:validation:XValidation:rule="!(self in ['poolboot.io/unassigned', 'node.cluster.x-k8s.io/uninitialized', 'node.cluster.x-k8s.io/outdated-revision'])",message="Poolboot or Cluster API adds and removes this taint: leave it out",reason=FieldValueForbidden
	Key string `json:"key,omitempty"`

	// value is the value of the taint, in the format of a label value. If it is not set, the value is empty.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="it must be a label value: letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	Value string `json:"value,omitempty"`

	// effect is what the taint does to Pods that do not tolerate it: NoSchedule, PreferNoSchedule or NoExecute.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect,omitempty"`
}

// CoreTaints converts taints to those of the core API, as in the spec of a Node.
func CoreTaints(taints []Taint) []corev1.Taint {
	var core []corev1.Taint
	for _, t := range taints {
		core = append(core, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return core
}
