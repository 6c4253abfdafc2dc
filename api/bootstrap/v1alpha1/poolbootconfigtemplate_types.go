package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// PoolbootConfigTemplateResource is the PoolbootConfig that Cluster API creates from a template.
type PoolbootConfigTemplateResource struct {
	// metadata is the metadata of every PoolbootConfig that is created.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of every PoolbootConfig that is created.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.join)",message="it says how the hosts join the cluster",fieldPath=".join",reason=FieldValueRequired
	// +kubebuilder:validation:XValidation:rule="!has(self.poolRole) || self.poolRole != 'control-plane'",message="hosts of the control plane boot by the control plane provider, and only an adopted Node can be in this pool: use its bootstrap config, and adopt the Nodes",fieldPath=".poolRole",reason=FieldValueForbidden
	Spec BootSpec `json:"spec,omitempty,omitzero"`
}

// PoolbootConfigTemplateSpec holds the PoolbootConfig to create.
type PoolbootConfigTemplateSpec struct {
	// template is the PoolbootConfig to create. It is immutable: to change it, create another template and reference it
	// in the MachineDeployment.
	// +required
	Template PoolbootConfigTemplateResource `json:"template,omitempty,omitzero"`
}

// PoolbootConfigTemplate is the template of the PoolbootConfigs of a MachineDeployment's or MachineSet's Machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=poolbootconfigtemplates,scope=Namespaced,shortName=pbtemplate,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.template.spec.poolRole`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PoolbootConfigTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec holds the PoolbootConfig to create.
	// +required
	Spec PoolbootConfigTemplateSpec `json:"spec,omitempty,omitzero"`
}

// PoolbootConfigTemplateList is a list of PoolbootConfigTemplates.
//
// +kubebuilder:object:root=true
type PoolbootConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PoolbootConfigTemplate `json:"items"`
}
