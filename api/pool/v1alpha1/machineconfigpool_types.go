package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
)

// MachineConfigPoolSpec defines which MachineConfigs a pool renders and which Nodes belong to it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.node) || !has(self.node.labels) || !('poolboot.io/pool' in self.node.labels) || self.node.labels['poolboot.io/pool'] == self.poolRole",message="Poolboot sets it to the role of the Node's pool: leave it out",fieldPath=".node.labels['poolboot.io/pool']",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.poolRole != 'control-plane' || !has(self.nodeSelector)",message="the Nodes of the control plane are those with the label node-role.kubernetes.io/control-plane: leave it out",fieldPath=".nodeSelector",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.poolRole != 'control-plane' || !has(self.maxUnavailable)",message="hosts of the control plane are updated one at a time: leave it out",fieldPath=".maxUnavailable",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.poolRole != 'control-plane' || !has(self.hosts) || !has(self.hosts.templateRef)",message="hosts of the control plane boot by the control plane provider: leave it out",fieldPath=".hosts.templateRef",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.poolRole == 'worker' || !has(self.updates) || !has(self.updates.cluster)",message="it applies to all pools of the cluster: set it in the worker pool",fieldPath=".updates.cluster",reason=FieldValueForbidden
type MachineConfigPoolSpec struct {
	// clusterName is the Cluster, in the same namespace, whose Machines and Nodes the pool is for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another pool"
	ClusterName string `json:"clusterName,omitempty"`

	// poolRole is the pool's name within its cluster, as in the labels node-role.kubernetes.io/<role> and
	// poolboot.io/pool=<role> of its Nodes, and in the spec.poolRole of PoolbootConfigs. The role "worker" is
	// the pool that every custom pool of the cluster inherits from. The pool with the role "control-plane" inherits
	// from none. Its hosts are Nodes of the control plane that you adopt.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another pool"
	// +kubebuilder:validation:XValidation:rule="self != 'master'",message="the role of the control plane's pool is control-plane"
	PoolRole string `json:"poolRole,omitempty"`

	// machineConfigSelector selects the MachineConfigs of the same namespace that the pool renders. A custom pool
	// always renders those of the worker pool first. If it is not set, the pool has no MachineConfigs of its
	// own.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="it must not be empty: leave it out for a pool without MachineConfigs of its own, or select by a label that all intended MachineConfigs have"
	MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector,omitempty"`

	// nodeSelector selects the Nodes of the pool. It must be registrable: labels that satisfy the whole selector must
	// follow from matchLabels, In and Exists. If In allows several values, node.labels must set one. Defaults to node-
	// role.kubernetes.io/<role>: "".
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="it must not be empty, because it would match nothing: leave it out for the default"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// paused specifies whether the pool holds back new rendered configs. A paused pool continues to render, but hands
	// out the rendered config that the annotation poolboot.io/paused-configuration names: new Machines boot with it,
	// and hosts whose update failed return to it. Poolboot sets the annotation if you do not, and removes it when the
	// pool is no longer paused.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// configurationName is the name of an earlier rendered config of this pool that it hands out instead of what it
	// renders: new Machines boot with it, and running hosts are updated to it under all limits. The pool continues to
	// render, and the condition Pinned says what differs. Labels and taints of Nodes, and all other settings of the
	// pool, stay as they are. A paused pool hands it out after the pause.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	ConfigurationName string `json:"configurationName,omitempty"`

	// maxUnavailable is how many of the pool's hosts can be unavailable at a time because they are updated: a number,
	// or a percentage of the pool's hosts, rounded down. A result of 0 is 1. Defaults to 1. Hosts that are unavailable
	// for other reasons count.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9]?[0-9])%$')",message="it must be a number of at least 1, or a percentage such as \"10%\""
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// adoption is what Poolboot does when a Machine of another bootstrap provider has joined, and the labels of its
	// Node put it in this pool: nothing (Ask), or create the PoolbootConfig that adopts the Node, with Preview or
	// Follow as its spec.host.adoption. Labels that a kubelet can set do not count. With Follow, you agree in advance
	// to all that the pool changes on such hosts. PoolbootConfigs that exist keep their value. Other pools do not
	// inherit it. Defaults to Ask.
	// +optional
	Adoption PoolAdoption `json:"adoption,omitempty"`

	// node is what the pool's Nodes are registered with. Its labels, and once its taints, are also added to existing
	// Nodes that lack them; what a user set on a Node is never overwritten. Its label rules apply to the hosts of this
	// pool only: other pools do not inherit those of the worker pool.
	// +optional
	Node nodev1.NodeSettings `json:"node,omitempty,omitzero"`

	// kubelet is how the kubelets of the pool's machines run.
	// +optional
	Kubelet KubeletSettings `json:"kubelet,omitempty,omitzero"`

	// updates is when and how the pool's running hosts change to another configuration.
	// +optional
	Updates UpdateSettings `json:"updates,omitempty,omitzero"`

	// hosts is what Poolboot knows of the pool's hosts without their inspection or their Machine.
	// +optional
	Hosts HostSettings `json:"hosts,omitempty,omitzero"`
}

// PoolAdoption is how Nodes of Machines that Poolboot did not boot come into their pool.
//
// +kubebuilder:validation:Enum=Ask;Preview;Follow
type PoolAdoption string

const (
	// PoolAdoptionAsk means that somebody creates a PoolbootConfig for each Node.
	PoolAdoptionAsk PoolAdoption = "Ask"
	// PoolAdoptionPreview means that Poolboot creates it. The host stays as it was found, and the PoolbootConfig
	// reports what the pool would change.
	PoolAdoptionPreview PoolAdoption = "Preview"
	// PoolAdoptionFollow means that Poolboot creates it, and that the host follows the pool.
	PoolAdoptionFollow PoolAdoption = "Follow"
)

// KubeletSettings is how the kubelets of a pool's machines run.
//
// +kubebuilder:validation:MinProperties=1
type KubeletSettings struct {
	// configuration is the configuration of the kubelets of the pool's machines: a KubeletConfiguration of
	// kubelet.config.k8s.io/v1beta1, with apiVersion, kind and the fields to set, for example maxPods. Fields by which
	// a kubelet registers its Node, joins the cluster or is reached are refused. A custom pool inherits the
	// worker pool's configuration and overrides it field by field: objects by their keys, lists as a whole.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="self.apiVersion == 'kubelet.config.k8s.io/v1beta1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1"
	// +kubebuilder:validation:XValidation:rule="self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata)",message="it must not have metadata: remove it",reason=FieldValueForbidden
	Configuration *runtime.RawExtension `json:"configuration,omitempty"`

	// autoSizingReserved has each host compute what its kubelet reserves for the system (systemReserved), as
	// OpenShift does. It cannot be combined with systemReserved in the same pool. A custom pool inherits
	// the worker pool's value, and its own replaces it.
	// +optional
	AutoSizingReserved *bool `json:"autoSizingReserved,omitempty"`

	// wrapper is a command that starts the kubelets of the pool's machines: the path of a program and its arguments, to
	// which the kubelet's own command is added, for example [/usr/bin/nsenter, --mount=/run/kubens/mnt]. A custom pool
	// inherits the worker pool's wrapper, and its own replaces it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_./:=@,+-]+$`
	// +kubebuilder:validation:XValidation:rule="self[0].startsWith('/')",message="it must start with the absolute path of a program, such as /usr/bin/nsenter"
	Wrapper []string `json:"wrapper,omitempty"`
}

// HostSettings is what Poolboot knows of a pool's hosts without their inspection or their Machine.
//
// +kubebuilder:validation:MinProperties=1
type HostSettings struct {
	// architecture is amd64 or arm64: that of hosts for which neither HardwareData nor the BareMetalHost has one,
	// such as hosts that enroll. Defaults to amd64.
	// +optional
	Architecture Architecture `json:"architecture,omitempty"`

	// templateRef names the PoolbootConfigTemplate, in the same namespace, for hosts without a Machine: hosts that
	// present an enrollment token, and annotated BareMetalHosts. If it is not set, only Machines can boot into the
	// pool.
	// +optional
	TemplateRef HostTemplateReference `json:"templateRef,omitempty,omitzero"`

	// networkRenderer is the program of the image that configures the network: SystemdNetworkd, NetworkManager or None.
	// Hosts get the network data that Metal3 has for them as files of this program. With None, Poolboot ignores it. If
	// it is not set, Machines with network data wait. A custom pool inherits the worker pool's value, and
	// its own replaces it.
	// +optional
	NetworkRenderer NetworkRenderer `json:"networkRenderer,omitempty"`
}

// NetworkRenderer is a program that configures the network of a host.
//
// +kubebuilder:validation:Enum=SystemdNetworkd;NetworkManager;None
type NetworkRenderer string

const (
	// NetworkRendererSystemdNetworkd is systemd-networkd.
	NetworkRendererSystemdNetworkd NetworkRenderer = "SystemdNetworkd"
	// NetworkRendererNetworkManager is NetworkManager.
	NetworkRendererNetworkManager NetworkRenderer = "NetworkManager"
	// NetworkRendererNone is no program: the network data of hosts is ignored.
	NetworkRendererNone NetworkRenderer = "None"
)

// Architecture is the architecture of a host, as Go names it.
//
// +kubebuilder:validation:Enum=amd64;arm64
type Architecture string

const (
	// ArchitectureAMD64 is that of x86-64.
	ArchitectureAMD64 Architecture = "amd64"
	// ArchitectureARM64 is that of 64-bit ARM.
	ArchitectureARM64 Architecture = "arm64"
)

// HostTemplateReference names a PoolbootConfigTemplate in the pool's namespace.
type HostTemplateReference struct {
	// name is the PoolbootConfigTemplate's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
}

// DefaultArchitecture returns the architecture of hosts for which neither HardwareData nor the BareMetalHost has one.
func (s *HostSettings) DefaultArchitecture() Architecture {
	return cmp.Or(s.Architecture, ArchitectureAMD64)
}

// AdoptsNodes reports whether Poolboot adopts the Nodes of Machines for the pool without being asked for each.
func (s *MachineConfigPoolSpec) AdoptsNodes() bool {
	return s.Adoption == PoolAdoptionPreview || s.Adoption == PoolAdoptionFollow
}

// IsPaused reports whether the pool holds back new rendered configs.
func (s *MachineConfigPoolSpec) IsPaused() bool { return s.Paused != nil && *s.Paused }

// MachineConfigPool is a group of machines of one cluster with the same configuration. A custom pool is a pool whose
// role is neither worker nor control-plane. It inherits every MachineConfig of the worker pool and adds its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfigpools,scope=Namespaced,shortName=pbpool,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io/move=","cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters, because it is the value of a label of its rendered configs: use a shorter name",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.configurationName) || self.spec.configurationName.startsWith('rendered-' + self.metadata.name + '-')",message="it must be a rendered config of this pool, as kubectl poolboot rollout history lists them: use the name of one, or leave it out",fieldPath=".spec.configurationName"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Hosts",type=integer,JSONPath=`.status.hostCount`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedHostCount`
// +kubebuilder:printcolumn:name="Degraded",type=integer,JSONPath=`.status.degradedHostCount`
// +kubebuilder:printcolumn:name="Reboot",type=integer,JSONPath=`.status.rebootRequiredHostCount`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineConfigPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec defines which MachineConfigs the pool renders and which Nodes belong to it.
	// +required
	Spec MachineConfigPoolSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the pool.
	// +optional
	Status MachineConfigPoolStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions, for Cluster API's condition and patch libraries.
func (p *MachineConfigPool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the conditions, for Cluster API's condition and patch libraries.
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
