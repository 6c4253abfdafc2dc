package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
)

// MachineConfigPoolSpec says which MachineConfigs a pool renders and which Nodes belong to it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.pausedConfiguration) || has(self.paused) && self.paused || has(oldSelf.pausedConfiguration) && oldSelf.pausedConfiguration == self.pausedConfiguration",message="pausedConfiguration is set only while paused is true: leave it out, or set paused to true",fieldPath=".pausedConfiguration",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.nodeLabels) || !('node.cluster.x-k8s.io/pool' in self.nodeLabels) || self.nodeLabels['node.cluster.x-k8s.io/pool'] == self.poolRole",message="Poolboot sets it to the role of the Node's pool: leave it out",fieldPath=".nodeLabels['node.cluster.x-k8s.io/pool']",reason=FieldValueForbidden
type MachineConfigPoolSpec struct {
	// clusterName is the Cluster, in the same namespace, whose Machines and Nodes the pool is for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: make a new pool"
	ClusterName string `json:"clusterName,omitempty"`

	// poolRole is the pool's name within its cluster: the word in node-role.kubernetes.io/<role>, in the Node label
	// node.cluster.x-k8s.io/pool=<role>, and in PoolbootConfig's spec.poolRole. The role "worker" is the pool that
	// every other pool of the cluster inherits from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: make a new pool"
	// +kubebuilder:validation:XValidation:rule="!(self in ['master', 'control-plane'])",message="control plane machines can't be in a pool"
	PoolRole string `json:"poolRole,omitempty"`

	// machineConfigSelector selects the MachineConfigs of the same namespace that the pool renders. A pool other than
	// worker always renders those of the worker pool first. If it is not set, the pool has none of its own.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="it must not be empty: leave it out for a pool without MachineConfigs of its own, or select by a label that all MachineConfigs meant have"
	MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector,omitempty"`

	// nodeSelector selects the Nodes of the pool. It must be registrable: the labels that follow from what a Node must
	// have (matchLabels, In, Exists) must meet all of it, also what a Node must not have (NotIn, DoesNotExist). Where
	// In leaves several values, nodeLabels says which one the pool's Nodes are registered with. Defaults to
	// node-role.kubernetes.io/<role>: "".
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="it is empty and matches nothing: leave it out to have the default"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// nodeLabels are the labels that the pool's Nodes are registered with. They are also added to existing Nodes that
	// lack them. A value that a person set on a Node is never overwritten.
	// +optional
	NodeLabels nodev1.Labels `json:"nodeLabels,omitempty"`

	// nodeTaints are the taints that the pool's Nodes are registered with. They are also added, once, to existing Nodes
	// that lack them. A taint that a person changed stays, and one that a person removed does not come back.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	NodeTaints []nodev1.Taint `json:"nodeTaints,omitempty"`

	// kubeletConfiguration is how the kubelets of the pool's machines are set up: a KubeletConfiguration of
	// kubelet.config.k8s.io/v1beta1, with apiVersion, kind and the fields to set, for example maxPods or
	// systemReserved. What makes a kubelet its Node, or lets it join and be reached, is refused: names, taints,
	// authentication, certificates. A pool other than worker has what the worker pool says here too, and wins over it
	// field by field, as the kubelet merges drop-ins: objects by their keys, lists as a whole.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="self.apiVersion == 'kubelet.config.k8s.io/v1beta1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1"
	// +kubebuilder:validation:XValidation:rule="self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata)",message="a KubeletConfiguration has no metadata: remove it",reason=FieldValueForbidden
	KubeletConfiguration *runtime.RawExtension `json:"kubeletConfiguration,omitempty"`

	// hostTemplateRef names the PoolbootConfigTemplate, in the same namespace, for hosts without a Machine: hosts that
	// come with an enrollment token, and BareMetalHosts with the annotations pool.cluster.x-k8s.io/pool-role: <role>
	// and pool.cluster.x-k8s.io/cluster: <Cluster>. If it is not set, the pool takes Machines only.
	// +optional
	HostTemplateRef HostTemplateReference `json:"hostTemplateRef,omitempty,omitzero"`

	// nodeLabelRules are rules that derive labels of the pool's Nodes from facts of their hosts when the Nodes are
	// registered. They apply to the hosts of this pool only; other pools do not inherit those of the worker pool.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=64
	NodeLabelRules []nodev1.NodeLabelRule `json:"nodeLabelRules,omitempty"`

	// paused specifies whether new rendered configs are held back. A paused pool goes on rendering, and its new
	// Machines boot with pausedConfiguration.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// pausedConfiguration is the rendered config of this pool that new Machines boot with while the pool is paused. If
	// it is not set, Poolboot sets it when the pool is paused: to the config that the pool hands out; if no Machine of
	// the pool booted with that one, to the one that most of them run. Poolboot removes it when the pool is no longer
	// paused.
	// +optional
	PausedConfiguration RenderedConfigReference `json:"pausedConfiguration,omitempty,omitzero"`
}

// RenderedConfigReference names a rendered config of the pool.
type RenderedConfigReference struct {
	// name is the rendered MachineConfig's name: rendered-<pool>-<hash of its content>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
}

// HostTemplateReference names a PoolbootConfigTemplate in the pool's namespace.
type HostTemplateReference struct {
	// name is the PoolbootConfigTemplate's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
}

// IsPaused says whether new rendered configs are kept from the pool's hosts.
func (s *MachineConfigPoolSpec) IsPaused() bool { return s.Paused != nil && *s.Paused }

// MachineConfigSource names a MachineConfig that went into a rendered config.
type MachineConfigSource struct {
	// name is the MachineConfig's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
}

// PoolConfiguration is a rendered config and what it was made of.
type PoolConfiguration struct {
	// name is the rendered MachineConfig's name: rendered-<pool>-<hash of its content>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`

	// source lists the MachineConfigs that were merged, in the order in which they were. It is empty for an earlier
	// rendered config that a paused pool goes back to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Source []MachineConfigSource `json:"source,omitempty"`
}

// IsDefined says whether the pool has a rendered config.
func (c *PoolConfiguration) IsDefined() bool { return c.Name != "" }

// MachineConfigPoolStatus is what is known of a pool.
//
// +kubebuilder:validation:MinProperties=1
type MachineConfigPoolStatus struct {
	// conditions are Updated, Updating, Degraded, RenderDegraded, NodeDegraded and Paused, which is true while Cluster
	// API has the Cluster or the pool paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// configuration is the rendered config that Machines of the pool boot with.
	// +optional
	Configuration PoolConfiguration `json:"configuration,omitempty,omitzero"`

	// machineCount is the number of Machines that are recorded in the pool, and of hosts without a Machine.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MachineCount *int32 `json:"machineCount,omitempty"`

	// updatedMachineCount is the number of the pool's Machines that run what the pool renders. For a paused pool that
	// is what waits to be handed out, as in OpenShift.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedMachineCount *int32 `json:"updatedMachineCount,omitempty"`

	// readyMachineCount is the number of updated Machines whose Node is Ready and in the pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyMachineCount *int32 `json:"readyMachineCount,omitempty"`

	// unavailableMachineCount is the number of the pool's Machines whose Node is not there, not Ready or not in the
	// pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnavailableMachineCount *int32 `json:"unavailableMachineCount,omitempty"`

	// degradedMachineCount is the number of the pool's Machines that can't go on without a person.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DegradedMachineCount *int32 `json:"degradedMachineCount,omitempty"`
}

// MachineConfigPool is a group of machines of one cluster that have one configuration. A custom pool, one whose role is
// not worker, inherits every MachineConfig of the worker pool and adds its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfigpools,scope=Namespaced,shortName=pbpool,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io/move=","cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name may have 63 characters, because a label of its rendered configs holds it: use a shorter one",fieldPath=".metadata"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,priority=1
// +kubebuilder:printcolumn:name="PoolRole",type=string,JSONPath=`.spec.poolRole`,priority=1
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.status.configuration.name`
// +kubebuilder:printcolumn:name="Updated",type=string,JSONPath=`.status.conditions[?(@.type=="Updated")].status`
// +kubebuilder:printcolumn:name="Updating",type=string,JSONPath=`.status.conditions[?(@.type=="Updating")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="MachineCount",type=integer,JSONPath=`.status.machineCount`
// +kubebuilder:printcolumn:name="ReadyMachineCount",type=integer,JSONPath=`.status.readyMachineCount`
// +kubebuilder:printcolumn:name="UpdatedMachineCount",type=integer,JSONPath=`.status.updatedMachineCount`
// +kubebuilder:printcolumn:name="DegradedMachineCount",type=integer,JSONPath=`.status.degradedMachineCount`
// +kubebuilder:printcolumn:name="UnavailableMachineCount",type=integer,JSONPath=`.status.unavailableMachineCount`,priority=1
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineConfigPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says which MachineConfigs the pool renders and which Nodes belong to it.
	// +required
	Spec MachineConfigPoolSpec `json:"spec,omitempty,omitzero"`
	// status is what is known of the pool.
	// +optional
	Status MachineConfigPoolStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the pool's conditions, for Cluster API's condition and patch libraries.
func (p *MachineConfigPool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the pool's conditions, for Cluster API's condition and patch libraries.
func (p *MachineConfigPool) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// MachineConfigPoolList is a list of MachineConfigPools.
//
// +kubebuilder:object:root=true
type MachineConfigPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineConfigPool `json:"items"`
}
