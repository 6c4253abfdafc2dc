package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BootStatus is the timeline of a host's boot. It begins with the creation of the PoolbootConfig and the condition
// DataSecretAvailable.
//
// +kubebuilder:validation:MinProperties=1
type BootStatus struct {
	// hostChosenTime is the time at which Poolboot first saw which host the infrastructure provider chose. It is set at
	// the latest when that host requests its configuration.
	// +optional
	HostChosenTime *metav1.MicroTime `json:"hostChosenTime,omitempty"`

	// servedConfiguration is the rendered config that the host was last served: the one of its boot or, once an update
	// is done, the one that it was updated to.
	// +optional
	ServedConfiguration ConfigurationReference `json:"servedConfiguration,omitempty,omitzero"`

	// preparedTime is the time at which the Node, the join credential and the machine's overlay were last complete.
	// +optional
	PreparedTime *metav1.MicroTime `json:"preparedTime,omitempty"`

	// answeredRequestTime is the requests.requestedTime that was answered last: the boot was prepared for it, or was
	// withdrawn. The manager has not answered a request with another time.
	// +optional
	AnsweredRequestTime *metav1.MicroTime `json:"answeredRequestTime,omitempty"`

	// kubeletRegisteredTime is the time at which the host's kubelet first reported its state, by the host's own clock.
	// It is set once the Node is Ready in its pool.
	// +optional
	KubeletRegisteredTime *metav1.Time `json:"kubeletRegisteredTime,omitempty"`

	// nodeReadyTime is the time at which Poolboot first saw the Node Ready in its pool.
	// +optional
	NodeReadyTime *metav1.MicroTime `json:"nodeReadyTime,omitempty"`

	// tokenRevokedTime is the time at which the host's token was revoked and its join credential deleted, which ends
	// the boot.
	// +optional
	TokenRevokedTime *metav1.MicroTime `json:"tokenRevokedTime,omitempty"`

	// credentialID is the ID of the bootstrap token that the host joins with. It is absent once the token is deleted.
	// +optional
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{6}$`
	CredentialID string `json:"credentialID,omitempty"`

	// credentialExpirationTime is the time at which that bootstrap token expires.
	// +optional
	CredentialExpirationTime *metav1.Time `json:"credentialExpirationTime,omitempty"`
}

// GrantedCertificate is the certificate that a host obtained with a join credential. It is recorded before the
// certificate is approved.
type GrantedCertificate struct {
	// credentialID is the ID of the bootstrap token that the certificate was requested with.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{6}$`
	CredentialID string `json:"credentialID,omitempty"`
	// publicKeySHA256 is the SHA-256 of the public key in the certificate, in hex.
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	PublicKeySHA256 string `json:"publicKeySHA256,omitempty"`
	// grantedTime is the time at which the certificate was approved.
	// +required
	GrantedTime metav1.Time `json:"grantedTime,omitempty,omitzero"`
}

// IsDefined reports whether a join credential was used.
func (c *GrantedCertificate) IsDefined() bool { return *c != GrantedCertificate{} }

// HostReference names the BareMetalHost behind a Machine.
type HostReference struct {
	// name is the BareMetalHost's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
	// namespace is the BareMetalHost's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="it must be a lowercase RFC 1123 label: letters, digits and '-', beginning and ending with a letter or digit"
	Namespace string `json:"namespace,omitempty"`
	// uid is the BareMetalHost's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// IsDefined reports whether the reference names a host.
func (r *HostReference) IsDefined() bool { return *r != HostReference{} }

// NodeReference names a Node of the workload cluster.
type NodeReference struct {
	// name is the Node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
	// uid is the Node's UID. A Node with the same name and another UID was deleted and registered again.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// IsDefined reports whether the reference names a Node.
func (r *NodeReference) IsDefined() bool { return *r != NodeReference{} }

// ConfigurationReference names a rendered MachineConfig in the namespace of the object that refers to it.
type ConfigurationReference struct {
	// name is the MachineConfig's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
}
