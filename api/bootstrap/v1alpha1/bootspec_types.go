package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
)

// NodeNameSource is the kind of object that a Node is named after.
//
// +kubebuilder:validation:Enum=Machine;Host
type NodeNameSource string

const (
	// NodeNameSourceMachine names the Node after its Machine.
	NodeNameSourceMachine NodeNameSource = "Machine"
	// NodeNameSourceHost names the Node after its BareMetalHost.
	NodeNameSourceHost NodeNameSource = "Host"
)

// PoolRetention is the object on which the pool of a Node is recorded.
//
// +kubebuilder:validation:Enum=Machine;Host
type PoolRetention string

const (
	// PoolRetentionMachine keeps the pool for as long as the Machine exists.
	PoolRetentionMachine PoolRetention = "Machine"
	// PoolRetentionHost keeps the pool on the BareMetalHost, also for the next Machine on that host.
	PoolRetentionHost PoolRetention = "Host"
)

// BootSpec defines how a host boots into its pool. PoolbootConfigs and their templates share it.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.configSource) || self.configSource.type != 'Inline' || !has(self.nodeNameSource) || self.nodeNameSource != 'Host'",message="Host needs configSource.type Server: with Inline the Node's name is fixed before a host is chosen",fieldPath=".nodeNameSource",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.configSource) || self.configSource.type != 'Inline' || !has(self.poolRetention) || self.poolRetention != 'Host'",message="Host needs configSource.type Server: with Inline the pool is fixed before a host is chosen",fieldPath=".poolRetention",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.node) || !has(self.node.labels) || !('poolboot.io/pool' in self.node.labels) || has(self.poolRole) && self.node.labels['poolboot.io/pool'] == self.poolRole",message="Poolboot sets it to the role of the Node's pool: leave it out",fieldPath=".node.labels['poolboot.io/pool']",reason=FieldValueForbidden
type BootSpec struct {
	// poolRole is the role of the MachineConfigPool that the Machine boots into. If it is not set, the Machine's labels
	// decide. A Machine without a role label boots into worker. A Machine with a role label that no pool selects does
	// not boot.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'master'",message="the role of the control plane's pool is control-plane"
	PoolRole string `json:"poolRole,omitempty"`

	// configSource defines where the host gets its configuration from. Defaults to type Server.
	// +optional
	ConfigSource ConfigSource `json:"configSource,omitempty,omitzero"`

	// join defines how the host joins the cluster. It is required for every host that boots.
	// +optional
	Join Join `json:"join,omitempty,omitzero"`

	// nodeNameSource is the object that the Node is named after: Machine, or Host for its BareMetalHost. Defaults to
	// Machine.
	// +optional
	NodeNameSource NodeNameSource `json:"nodeNameSource,omitempty"`

	// poolRetention defines how long the pool of the Node is kept: Machine for as long as the Machine exists; Host also
	// on the BareMetalHost, in the annotation poolboot.io/retained-pool, so that the next Machine on that host whose
	// poolRetention is Host boots into that pool, regardless of its poolRole and labels. Host requires
	// configSource.type Server. Defaults to Machine.
	// +optional
	PoolRetention PoolRetention `json:"poolRetention,omitempty"`

	// node is what the Node is registered with, in addition to the labels of the Machine and of the pool, and the
	// taints of the pool. A different value of a label for the same key there is an error.
	// +optional
	Node nodev1.NodeSettings `json:"node,omitempty,omitzero"`

	// extraConfig is merged over the pool's configuration, for this PoolbootConfig only. In a template it applies to
	// each of the template's Machines. Entries that a MachineConfig must not have are refused here too.
	// +optional
	ExtraConfig *ExtraConfig `json:"extraConfig,omitempty"`
}

// ConfigSourceType is the kind of source that a host gets its configuration from.
//
// +kubebuilder:validation:Enum=Server;Inline
type ConfigSourceType string

const (
	// ConfigSourceTypeServer puts a pointer to Poolboot's config server into the data Secret.
	ConfigSourceTypeServer ConfigSourceType = "Server"
	// ConfigSourceTypeInline puts the whole configuration and a join credential into the data Secret.
	ConfigSourceTypeInline ConfigSourceType = "Inline"
)

// ConfigSource defines where a host gets its configuration from.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Server' || !has(self.server)",message="may only be set with type Server: remove it, or change type",fieldPath=".server",reason=FieldValueForbidden
type ConfigSource struct {
	// type is where the host gets its configuration from.
	//
	// Server: the data Secret holds a pointer to Poolboot's config server. The machine's configuration and its
	// join credential are created when the host requests them. Use it wherever hosts can reach the config server.
	//
	// Inline: the data Secret holds the whole configuration and a join credential that is renewed until the host
	// has joined. Use it for hosts that can't reach the config server.
	// +required
	// +unionDiscriminator
	Type ConfigSourceType `json:"type,omitempty"`

	// server is the settings for type Server.
	// +optional
	Server ServerSource `json:"server,omitempty,omitzero"`
}

// ServerSource is the settings of a host that gets its configuration from the config server. The address and the CA of
// the config server are flags of the manager.
//
// +kubebuilder:validation:MinProperties=1
type ServerSource struct {
	// tokenBinding defines from which addresses the host's token is accepted: Any, or with HostAddresses only those of
	// the BareMetalHost, which inspection found or its annotation poolboot.io/addresses has. Use it where hosts boot
	// with these addresses and the config server sees them: other requests get an error after which the host retries.
	// Defaults to Any. The token of a host that enrolled is always bound to the address that it enrolled from.
	// +optional
	TokenBinding TokenBinding `json:"tokenBinding,omitempty"`
}

// TokenBinding defines from which addresses a host's token is accepted.
//
// +kubebuilder:validation:Enum=Any;HostAddresses
type TokenBinding string

const (
	// TokenBindingAny accepts the token from any address.
	TokenBindingAny TokenBinding = "Any"
	// TokenBindingHostAddresses accepts the token only from the known addresses of the BareMetalHost.
	TokenBindingHostAddresses TokenBinding = "HostAddresses"
)

// JoinType is the program that joins a host to its cluster.
//
// +kubebuilder:validation:Enum=Kubelet;Kubeadm
type JoinType string

const (
	// JoinTypeKubelet joins by the kubelet's own TLS bootstrap.
	JoinTypeKubelet JoinType = "Kubelet"
	// JoinTypeKubeadm joins by kubeadm join.
	JoinTypeKubeadm JoinType = "Kubeadm"
)

// Join defines how a host joins its cluster.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Kubelet' || !has(self.kubelet)",message="may only be set with type Kubelet: remove it, or change type",fieldPath=".kubelet",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type == 'Kubeadm' || !has(self.kubeadm)",message="may only be set with type Kubeadm: remove it, or change type",fieldPath=".kubeadm",reason=FieldValueForbidden
type Join struct {
	// type is the program that joins the host to the cluster.
	//
	// Kubelet: the kubelet joins by its own TLS bootstrap. The host needs only a kubelet and a container runtime.
	//
	// Kubeadm: the host runs kubeadm join. The cluster must have been created by kubeadm.
	// +required
	// +unionDiscriminator
	Type JoinType `json:"type,omitempty"`

	// kubelet is the settings for type Kubelet.
	// +optional
	Kubelet KubeletJoin `json:"kubelet,omitempty,omitzero"`

	// kubeadm is the settings for type Kubeadm.
	// +optional
	Kubeadm KubeadmJoin `json:"kubeadm,omitempty,omitzero"`
}

// KubeletJoin is a join by the kubelet's own TLS bootstrap.
//
// +kubebuilder:validation:MinProperties=1
type KubeletJoin struct {
	// kubeletPath is the path of the kubelet on the host. Defaults to /usr/bin/kubelet.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	KubeletPath string `json:"kubeletPath,omitempty"`
}

// KubeadmJoin is a join by kubeadm join, with a JoinConfiguration of kubeadm.k8s.io/v1beta4.
//
// +kubebuilder:validation:MinProperties=1
type KubeadmJoin struct {
	// kubeadmPath is the path of kubeadm on the host. Defaults to /usr/bin/kubeadm.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	KubeadmPath string `json:"kubeadmPath,omitempty"`

	// criSocket is the socket of the container runtime. Set it for hosts on which kubeadm does not find it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	CRISocket string `json:"criSocket,omitempty"`

	// ignorePreflightErrors are the names of kubeadm's preflight checks whose errors are reported as warnings.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
}

// ExtraConfig is configuration that is added to the pool's, for one Machine.
//
// +kubebuilder:validation:XValidation:rule="[has(self.config), has(self.butane)].filter(x, x).size() == 1",message="set exactly one of config (Ignition), butane"
type ExtraConfig struct {
	// config is an Ignition configuration, spec version 2.0 to 2.4 or 3.0 to 3.6.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Config *runtime.RawExtension `json:"config,omitempty"`

	// butane is a Butane configuration (YAML text) that is translated to Ignition.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 262144",message="it must have at most 262144 bytes"
	Butane string `json:"butane,omitempty"`
}
