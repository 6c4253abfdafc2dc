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

	// firstRequestedTime is the time of the host's first request for the configuration that it has or waits for. A host
	// starts over when it requests one again after its configuration was prepared, presents another token, or replaces
	// another host. The config server writes it; the manager writes it when another host replaces this one.
	// +optional
	FirstRequestedTime *metav1.MicroTime `json:"firstRequestedTime,omitempty"`

	// requestedTime is the time of the host's last request for which no fresh configuration was prepared yet. The
	// config server writes it.
	// +optional
	RequestedTime *metav1.MicroTime `json:"requestedTime,omitempty"`

	// addresses are the addresses from which the host's token was used, at most eight for each token. The config server
	// writes them. When a rotated token is first used, it removes the addresses of the earlier token.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=16
	Addresses []TokenAddress `json:"addresses,omitempty"`

	// servedTime is the time at which the host was first served the configuration that was last prepared, or was first
	// served it again after it had reported that Ignition failed. The config server writes it.
	// +optional
	ServedTime *metav1.MicroTime `json:"servedTime,omitempty"`

	// ignitionFailure is the last failure of Ignition that the host reported. The config server writes it.
	// +optional
	IgnitionFailure IgnitionFailure `json:"ignitionFailure,omitempty,omitzero"`

	// preparedTime is the time at which the Node, the join credential and the machine's overlay were last complete.
	// +optional
	PreparedTime *metav1.MicroTime `json:"preparedTime,omitempty"`

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

	// certificate is the kubelet's client certificate for which a join credential was last used. Each credential
	// obtains one certificate.
	// +optional
	Certificate GrantedCertificate `json:"certificate,omitempty,omitzero"`
}

// IgnitionFailure is a failure of Ignition at the first boot of a host, as the host reports it.
type IgnitionFailure struct {
	// reportedTime is the time of the report.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="it must be later than the year 1999"
	ReportedTime metav1.MicroTime `json:"reportedTime,omitempty,omitzero"`

	// stage is the stage of Ignition that failed, such as fetch, disks or files.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z]*$`
	Stage string `json:"stage,omitempty"`

	// log is the end of Ignition's log, without what looks like a secret.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Log string `json:"log,omitempty"`
}

// TokenAddress is an address from which a host's token was used.
type TokenAddress struct {
	// address is the IP address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`

	// firstUsedTime is the time of the first request from the address.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="it must be later than the year 1999"
	FirstUsedTime metav1.MicroTime `json:"firstUsedTime,omitempty,omitzero"`

	// token is the first 16 digits of the SHA-256 of the token that was used from the address, in hex.
	// +required
	// +kubebuilder:validation:MinLength=16
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	Token string `json:"token,omitempty"`

	// reportedTime is the time at which the manager reported the address by an event, because it is not the first one,
	// or because the token is not bound to it.
	// +optional
	ReportedTime *metav1.MicroTime `json:"reportedTime,omitempty"`
}

// TokenHashPrefixLength is the number of hex digits of a token's SHA-256 in TokenAddress.Token. They distinguish a
// rotated token from earlier ones.
const TokenHashPrefixLength = 16

// GrantedCertificate is the certificate that a host obtained with a join credential. It is recorded before the
// certificate is approved.
type GrantedCertificate struct {
	// credentialID is the ID of the bootstrap token that the certificate was requested with.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{6}$`
	CredentialID string `json:"credentialID,omitempty"`
	// publicKeySHA256 is the SHA-256 of the public key in the certificate, in hex. A kubelet that restarts before it
	// has its certificate requests one for another key. That request is approved when the kubelet stopped sending
	// requests for this key a while ago.
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
