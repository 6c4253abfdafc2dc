package v1alpha1

// NodeSettings is what Nodes are registered with.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || !has(self.labelRules) || self.labelRules.all(rule, !(rule.key in self.labels))",message="labels has a value for the key of a rule: remove one of the two",fieldPath=".labelRules",reason=FieldValueForbidden
type NodeSettings struct {
	// labels are labels that Nodes are registered with.
	// +optional
	Labels Labels `json:"labels,omitempty"`

	// taints are taints that Nodes are registered with.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	Taints []Taint `json:"taints,omitempty"`

	// labelRules are rules that derive labels of Nodes from facts of their hosts when the Nodes are registered.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=64
	LabelRules []NodeLabelRule `json:"labelRules,omitempty"`
}
