// Package v1alpha1 has those fields of the kinds of Metal3's ip-address-manager that the simulator and its users need.
// The manager's own types are in no module that can be required; fields that are not here are kept as they are.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.metal3.io
package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "ipam.metal3.io", Version: "v1alpha1"}

// Finalizers of IPClaims and IPAddresses.
const (
	IPClaimFinalizer   = "ipclaim.ipam.metal3.io"
	IPAddressFinalizer = "ipaddress.ipam.metal3.io"
)

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &IPPool{}, &IPPoolList{}, &IPClaim{}, &IPClaimList{}, &IPAddress{}, &IPAddressList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Pool is a range of addresses.
type Pool struct {
	// start is the first address.
	// +optional
	Start string `json:"start,omitempty"`
	// end is the last address.
	// +optional
	End string `json:"end,omitempty"`
}

// IPPoolSpec describes addresses.
type IPPoolSpec struct {
	// clusterName is the name of the Cluster that owns the pool. Left out, nothing owns it, and clusterctl does not
	// move it.
	// +optional
	ClusterName *string `json:"clusterName,omitempty"`
	// pools are the ranges of addresses.
	// +optional
	Pools []Pool `json:"pools,omitempty"`
	// prefix is the length of the network prefix.
	// +optional
	Prefix int `json:"prefix,omitempty"`
	// gateway is the address of the gateway.
	// +optional
	Gateway *string `json:"gateway,omitempty"`
	// namePrefix is what names of IPAddresses start with.
	// +kubebuilder:validation:MinLength=1
	NamePrefix string `json:"namePrefix"`
}

// IPPool are addresses for hosts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ippools,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec IPPoolSpec `json:"spec,omitempty"`
}

// IPClaimSpec names the IPPool that an address is requested from.
type IPClaimSpec struct {
	// pool names the IPPool.
	Pool corev1.ObjectReference `json:"pool"`
}

// IPClaimStatus names the address, or has the error.
type IPClaimStatus struct {
	// address names the IPAddress.
	// +optional
	Address *corev1.ObjectReference `json:"address,omitempty"`
	// errorMessage is why there is no address.
	// +optional
	ErrorMessage *string `json:"errorMessage,omitempty"`
}

// IPClaim requests an address of an IPPool.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ipclaims,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type IPClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPClaimSpec   `json:"spec,omitempty"`
	Status            IPClaimStatus `json:"status,omitempty"`
}

// IPAddressSpec is an address, and what it is for.
type IPAddressSpec struct {
	// claim names the IPClaim.
	Claim corev1.ObjectReference `json:"claim"`
	// pool names the IPPool.
	Pool corev1.ObjectReference `json:"pool"`
	// prefix is the length of the network prefix.
	// +optional
	Prefix int `json:"prefix,omitempty"`
	// gateway is the address of the gateway.
	// +optional
	Gateway *string `json:"gateway,omitempty"`
	// address is the address.
	Address string `json:"address"`
}

// IPAddress is an address of an IPPool that an IPClaim has.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ipaddresses,scope=Namespaced,categories=metal3
// +kubebuilder:storageversion
type IPAddress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAddressSpec `json:"spec,omitempty"`
}

// IPPoolList is a list of IPPools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}

// IPClaimList is a list of IPClaims.
//
// +kubebuilder:object:root=true
type IPClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPClaim `json:"items"`
}

// IPAddressList is a list of IPAddresses.
//
// +kubebuilder:object:root=true
type IPAddressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAddress `json:"items"`
}
