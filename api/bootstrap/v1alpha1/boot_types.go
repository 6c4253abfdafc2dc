package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BootStatus follows the boot of a host. With the creation of the PoolbootConfig and the condition DataSecretAvailable its
// times are the timeline of the boot.
type BootStatus struct {
	// hostChosenTime is when Poolboot first saw which host the infrastructure provider chose, at the latest when that asked.
	// +optional
	HostChosenTime *metav1.MicroTime `json:"hostChosenTime,omitempty"`

	// firstRequestedTime is when the host first asked for the configuration that it has or waits for. A host that asks again after its
	// configuration was prepared, that has another token, or that takes the place of another host, starts over. The config server writes
	// it; the manager does for another host.
	// +optional
	FirstRequestedTime *metav1.MicroTime `json:"firstRequestedTime,omitempty"`

	// requestedTime is when the host last asked while there was no fresh configuration for it. The config server writes it.
	// +optional
	RequestedTime *metav1.MicroTime `json:"requestedTime,omitempty"`

	// addresses are those from which the host's token came, eight at most. The config server writes them. Those of a token that
	// was rotated since go when the new one is first used.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=16
	Addresses []TokenAddress `json:"addresses,omitempty"`

	// servedTime is when the config server first handed out the configuration that stands. The config server writes it.
	// +optional
	ServedTime *metav1.MicroTime `json:"servedTime,omitempty"`

	// preparedTime is when the Node, the join credential and the machine's overlay last stood complete.
	// +optional
	PreparedTime *metav1.MicroTime `json:"preparedTime,omitempty"`

	// kubeletRegisteredTime is when the host's kubelet first reported its state, by the host's own clock. It is known once
	// the Node is Ready in its pool.
	// +optional
	KubeletRegisteredTime *metav1.Time `json:"kubeletRegisteredTime,omitempty"`

	// nodeReadyTime is when Poolboot first saw the Node Ready in its pool.
	// +optional
	NodeReadyTime *metav1.MicroTime `json:"nodeReadyTime,omitempty"`

	// tokenRevokedTime is when the host's token and its join credential were gone, which ends the boot.
	// +optional
	TokenRevokedTime *metav1.MicroTime `json:"tokenRevokedTime,omitempty"`

	// credentialID is the public half of the bootstrap token that the host joins with; empty once it is deleted.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{6}$`
	CredentialID string `json:"credentialID,omitempty"`

	// credentialExpirationTime is when that token ends by itself.
	// +optional
	CredentialExpirationTime *metav1.Time `json:"credentialExpirationTime,omitempty"`

	// certificate is what a join credential was last used for. It gets one certificate that is used.
	// +optional
	Certificate *GrantedCertificate `json:"certificate,omitempty"`
}

// TokenAddress is what is known of an address from which a host's token came.
type TokenAddress struct {
	// address is the IP address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`

	// firstUsedTime is when it first did.
	// +required
	FirstUsedTime metav1.MicroTime `json:"firstUsedTime"`

	// token is which token it was: the first 16 digits of its SHA-256 in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	Token string `json:"token"`

	// reportedTime is when Poolboot's manager told of it by an event, because it is not the first address, or not one that the
	// token is bound to.
	// +optional
	ReportedTime *metav1.MicroTime `json:"reportedTime,omitempty"`
}

// TokenDigits is how many digits of its SHA-256 tell a token from those before it.
const TokenDigits = 16

// GrantedCertificate is the certificate that a join credential could get. It is on record before it is approved.
type GrantedCertificate struct {
	// credentialID is the public half of the bootstrap token that asked for it.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{6}$`
	CredentialID string `json:"credentialID"`
	// publicKeySHA256 is the SHA-256, in hex, of the public key that it is for. A kubelet that starts again before it has its
	// certificate asks with another key, and gets it when nobody has come with this one for a while.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	PublicKeySHA256 string `json:"publicKeySHA256"`
	// grantedTime is when it was approved.
	// +required
	GrantedTime metav1.Time `json:"grantedTime"`
}

// HostReference names the BareMetalHost behind a Machine.
type HostReference struct {
	// name is the BareMetalHost's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace is the BareMetalHost's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// uid is the BareMetalHost's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// NodeReference names a Node of the workload cluster.
type NodeReference struct {
	// name is the Node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid is the Node's UID. A Node of the same name and another UID was registered anew.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// ConfigurationReference names a rendered MachineConfig in the namespace of the object that refers to it.
type ConfigurationReference struct {
	// name is the MachineConfig's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
