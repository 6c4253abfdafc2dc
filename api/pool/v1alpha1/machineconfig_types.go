package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kernel types of MachineConfigSpec.KernelType, as OpenShift names them.
const (
	KernelTypeDefault  = "default"
	KernelTypeRealtime = "realtime"
	KernelType64kPages = "64k-pages"
)

// MachineConfigSpec is what a MachineConfig adds to the machines of the pools that select it. It has the fields of
// OpenShift's machineconfiguration.openshift.io/v1 MachineConfig, and butane as an alternative to config.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!(has(self.config) && has(self.butane))",message="set config (Ignition) or butane, not both",fieldPath=".butane",reason=FieldValueForbidden
type MachineConfigSpec struct {
	// config is an Ignition configuration, spec version 2.0 to 2.4 or 3.0 to 3.6. It must be complete: references to
	// other configurations (ignition.config) are refused, and so are remote contents of files that can hold the
	// kubelet's flags or settings.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Config *runtime.RawExtension `json:"config,omitempty"`

	// butane is a Butane configuration (YAML text) that is translated to Ignition. It must not refer to local files.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 1048576",message="it must have at most 1048576 bytes"
	Butane string `json:"butane,omitempty"`

	// kernelArguments are appended to the kernel command line, in this order, after those of earlier MachineConfigs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=2048
	KernelArguments []string `json:"kernelArguments,omitempty"`

	// extensions are operating system extensions to install, by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^-/\s][^/\s]*$`
	Extensions []string `json:"extensions,omitempty"`

	// fips enables FIPS mode on the pool's machines. It is enabled if any MachineConfig of the pool enables it.
	// +optional
	FIPS *bool `json:"fips,omitempty"`

	// kernelType is the kernel to run: default, realtime or 64k-pages. If several MachineConfigs set it, the last one
	// wins. Defaults to default.
	// +optional
	// +kubebuilder:validation:Enum={"","default","realtime","64k-pages"}
	KernelType string `json:"kernelType,omitempty"`

	// osImageURL is the operating system image to run. If several MachineConfigs set it, the last one wins.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$')",message="it must be the name of an image"
	OSImageURL string `json:"osImageURL,omitempty"`

	// baseOSExtensionsContainerImage is the image that extensions and other kernels are installed from. If several
	// MachineConfigs set it, the last one wins.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$')",message="it must be the name of an image"
	BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage,omitempty"`
}

// MachineConfigStatus is the observed state of a MachineConfig.
//
// +kubebuilder:validation:MinProperties=1
type MachineConfigStatus struct {
	// conditions has Ready: whether pools can render the MachineConfig.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// pools are the names of the first MachineConfigPools that render the MachineConfig: those that select it, and
	// those that inherit it because the pool worker of their Cluster selects it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Pools []string `json:"pools,omitempty"`
}

// MachineConfig is a piece of machine configuration: files, units, users, kernel arguments. MachineConfigPools select
// MachineConfigs by label and render them, in the order of their names, into one configuration.
//
// A MachineConfig whose name starts with "rendered-" is a rendered config. Poolboot creates it and names it after a
// hash of its content. It never changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfigs,scope=Namespaced,shortName=pbmconf,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io/move=","cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.status.pools`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineConfig struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what this MachineConfig adds.
	// +optional
	Spec MachineConfigSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the MachineConfig. Rendered configs have none.
	// +optional
	Status MachineConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions, for Cluster API's condition and patch libraries.
func (c *MachineConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions, for Cluster API's condition and patch libraries.
func (c *MachineConfig) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// MachineConfigList is a list of MachineConfigs.
//
// +kubebuilder:object:root=true
type MachineConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineConfig `json:"items"`
}
