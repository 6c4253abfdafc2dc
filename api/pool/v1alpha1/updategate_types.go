package v1alpha1

// UpdateGate is a condition of an object in the workload cluster. Hosts of the pool begin updates only while it is
// true.
type UpdateGate struct {
	// name identifies the gate in the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="it must be a lowercase RFC 1123 label: letters, digits and '-', beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`

	// objectRef names the object. The user poolboot:update-gates of the workload cluster must be allowed to get it.
	// +required
	ObjectRef UpdateGateObjectReference `json:"objectRef,omitempty,omitzero"`

	// expression is a CEL expression that is true while hosts can begin updates. Its variable object is the object,
	// for example object.status.readyReplicas == object.spec.replicas.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Expression string `json:"expression,omitempty"`
}

// UpdateGateObjectReference names an object in the workload cluster.
//
// +kubebuilder:validation:XValidation:rule="self.kind.lowerAscii() != 'secret'",message="a gate can't read Secrets: use an object whose status is not secret"
type UpdateGateObjectReference struct {
	// apiVersion is the group and version of the object, such as apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]([a-z0-9]*)$`
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the object, such as Deployment. It can't be Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$`
	Kind string `json:"kind,omitempty"`

	// namespace is the namespace of the object. It is not set for an object without a namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="it must be a lowercase RFC 1123 label: letters, digits and '-', beginning and ending with a letter or digit"
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.contains('%') && self != '.' && self != '..'",message="it must be the name of an object, without '/' and '%'"
	Name string `json:"name,omitempty"`
}
