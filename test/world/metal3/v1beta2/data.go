package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizers of Metal3DataClaims, of Metal3Data, and of the IPClaims of Metal3Data. A Metal3DataClaim has
// MachineFinalizer too, until its Metal3Machine does not need it.
const (
	DataClaimFinalizer = "metal3dataclaim.infrastructure.cluster.x-k8s.io"
	DataFinalizer      = "metal3data.infrastructure.cluster.x-k8s.io"
)

// ObjectReference names an object of a kind of the provider.
type ObjectReference struct {
	// name is its name.
	// +optional
	Name string `json:"name,omitempty"`
	// namespace is its namespace. Left out, that of the object that refers to it.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// MetaDataObjectName is a value of the metadata: the name of an object.
type MetaDataObjectName struct {
	// key is the key in the metadata.
	Key string `json:"key"`
	// object is machine, metal3machine or baremetalhost.
	// +kubebuilder:validation:Enum=machine;metal3machine;baremetalhost
	Object string `json:"object"`
}

// FromPool is a value of the metadata: an address from an IPPool.
type FromPool struct {
	// key is the key in the metadata.
	Key string `json:"key"`
	// name is the name of the IPPool.
	Name string `json:"name"`
}

// MetaData describes the metadata of a host, which also has the key providerid.
type MetaData struct {
	// objectNames are values that are names of objects.
	// +optional
	ObjectNames []MetaDataObjectName `json:"objectNames,omitempty"`
	// ipAddressesFromPool are values that are addresses.
	// +optional
	IPAddressesFromPool []FromPool `json:"ipAddressesFromPool,omitempty"`
}

// NetworkLinkEthernetMac says which MAC address a link has.
type NetworkLinkEthernetMac struct {
	// fromHostInterface is the name of an interface of the host.
	FromHostInterface string `json:"fromHostInterface"`
}

// NetworkDataLinkEthernet is an interface.
type NetworkDataLinkEthernet struct {
	// type is the type of the link.
	Type string `json:"type"`
	// id is the name of the link.
	ID string `json:"id"`
	// macAddress says which MAC address it has.
	MACAddress NetworkLinkEthernetMac `json:"macAddress"`
}

// NetworkDataLink are the interfaces of a host.
type NetworkDataLink struct {
	// ethernets are physical interfaces.
	// +optional
	Ethernets []NetworkDataLinkEthernet `json:"ethernets,omitempty"`
}

// NetworkGatewayv4 says which gateway a route has.
type NetworkGatewayv4 struct {
	// fromIPPool is the name of the IPPool that has it.
	FromIPPool string `json:"fromIPPool"`
}

// NetworkDataRoutev4 is a route.
type NetworkDataRoutev4 struct {
	// network is the destination.
	Network string `json:"network"`
	// prefix is the length of its prefix.
	// +optional
	Prefix int `json:"prefix,omitempty"`
	// gateway says which gateway it has.
	Gateway NetworkGatewayv4 `json:"gateway"`
}

// NetworkDataService are the services for a host.
type NetworkDataService struct {
	// dns are the addresses of DNS servers.
	// +optional
	DNS []string `json:"dns,omitempty"`
}

// NetworkDataIPv4 is a network with a static address.
type NetworkDataIPv4 struct {
	// id is the name of the network.
	ID string `json:"id"`
	// link is the link of the network.
	Link string `json:"link"`
	// ipAddressFromIPPool is the name of the IPPool of the address.
	IPAddressFromIPPool string `json:"ipAddressFromIPPool"`
	// routes are the routes of the network.
	// +optional
	Routes []NetworkDataRoutev4 `json:"routes,omitempty"`
}

// NetworkDataNetwork are the networks of a host.
type NetworkDataNetwork struct {
	// ipv4 are networks with static addresses.
	// +optional
	IPv4 []NetworkDataIPv4 `json:"ipv4,omitempty"`
}

// NetworkData describes the network data of a host.
type NetworkData struct {
	// links are the interfaces of the host.
	// +optional
	Links NetworkDataLink `json:"links,omitempty"`
	// services are the services for the host.
	// +optional
	Services NetworkDataService `json:"services,omitempty"`
	// networks are the networks of the host.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Networks NetworkDataNetwork `json:"networks,omitempty"`
}

// Metal3DataTemplateSpec describes the data of hosts.
type Metal3DataTemplateSpec struct {
	// clusterName is the name of the Cluster.
	// +kubebuilder:validation:MinLength=1
	ClusterName string `json:"clusterName"`
	// metaData is what the metadata is rendered from.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	MetaData *MetaData `json:"metaData,omitempty"`
	// networkData is what the network data is rendered from.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	NetworkData *NetworkData `json:"networkData,omitempty"`
}

// Metal3DataTemplate is what the metadata and the network data of hosts are rendered from. No Cluster owns it:
// clusterctl moves all objects of the kind.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3datatemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io/move="}
type Metal3DataTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3DataTemplateSpec `json:"spec,omitempty"`
}

// Metal3DataClaimSpec is what a Metal3Machine asks for.
type Metal3DataClaimSpec struct {
	// template names the Metal3DataTemplate.
	// +optional
	Template ObjectReference `json:"template,omitempty"`
}

// Metal3DataClaimStatus is the answer to a Metal3DataClaim.
type Metal3DataClaimStatus struct {
	// renderedData names the Metal3Data.
	// +optional
	RenderedData *ObjectReference `json:"renderedData,omitempty"`
}

// Metal3DataClaim asks for the data of a host, for the Metal3Machine of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3dataclaims,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3DataClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3DataClaimSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status Metal3DataClaimStatus `json:"status,omitempty"`
}

// Metal3DataSpec says what data a host has.
type Metal3DataSpec struct {
	// index is the number of this object among those of the template.
	// +optional
	Index int32 `json:"index,omitempty"`
	// metaData names the Secret with the metadata.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// networkData names the Secret with the network data.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
	// claim names the Metal3DataClaim.
	// +optional
	Claim ObjectReference `json:"claim,omitempty"`
	// template names the Metal3DataTemplate.
	// +optional
	Template ObjectReference `json:"template,omitempty"`
}

// Metal3DataStatus is whether the data exists.
type Metal3DataStatus struct {
	// ready is true when the Secrets exist.
	// +optional
	Ready *bool `json:"ready,omitempty"`
	// errorMessage is why they do not exist.
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// Metal3Data is the data of a host, with its Secrets.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3datas,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
// +kubebuilder:metadata:annotations={"clusterctl.cluster.x-k8s.io/skip-crd-name-preflight-check="}
type Metal3Data struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3DataSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status Metal3DataStatus `json:"status,omitempty"`
}

// Metal3DataTemplateList is a list of Metal3DataTemplates.
//
// +kubebuilder:object:root=true
type Metal3DataTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3DataTemplate `json:"items"`
}

// Metal3DataClaimList is a list of Metal3DataClaims.
//
// +kubebuilder:object:root=true
type Metal3DataClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3DataClaim `json:"items"`
}

// Metal3DataList is a list of Metal3Data.
//
// +kubebuilder:object:root=true
type Metal3DataList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Data `json:"items"`
}
