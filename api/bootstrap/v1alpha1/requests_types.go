package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HostRequests is what the config server records about the requests of a host. The manager writes it only to forget the
// requests of a host that another one replaces, and what was served before it prepares a boot again.
//
// +kubebuilder:validation:MinProperties=1
type HostRequests struct {
	// firstRequestedTime is the time of the host's first request for the configuration that it has or waits for. A host
	// starts over when it requests one again after its configuration was prepared, presents another token, or replaces
	// another host.
	// +optional
	FirstRequestedTime *metav1.MicroTime `json:"firstRequestedTime,omitempty"`

	// requestedTime is the time of the host's last request for which no fresh configuration was prepared yet.
	// +optional
	RequestedTime *metav1.MicroTime `json:"requestedTime,omitempty"`

	// servedTime is the time at which the host was first served the configuration that was last prepared, or was first
	// served it again after it had reported that Ignition failed.
	// +optional
	ServedTime *metav1.MicroTime `json:"servedTime,omitempty"`

	// addresses are the addresses from which the host's token was used, at most eight for each token. When a rotated
	// token is first used, those of the earlier token are removed.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=16
	Addresses []TokenAddress `json:"addresses,omitempty"`

	// ignitionFailure is the last failure of its first boot that the host reported.
	// +optional
	IgnitionFailure IgnitionFailure `json:"ignitionFailure,omitempty,omitzero"`

	// registrationRequestedTime is the time at which the host last asked for its Node to be pre-registered, before its
	// kubelet started.
	// +optional
	RegistrationRequestedTime *metav1.MicroTime `json:"registrationRequestedTime,omitempty"`
}

// IgnitionFailure is a failure of the first boot of a host, as the host reports it.
type IgnitionFailure struct {
	// reportedTime is the time of the report.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="it must be later than the year 1999"
	ReportedTime metav1.MicroTime `json:"reportedTime,omitempty,omitzero"`

	// stage is the stage of Ignition that failed, such as fetch, disks or files, or versions if Ignition succeeded, and
	// the kubelet or kubeadm does not fit the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z]*$`
	Stage string `json:"stage,omitempty"`

	// log is the end of Ignition's log, or what does not fit, without what looks like a secret.
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
}

// TokenHashPrefixLength is the number of hex digits of a token's SHA-256 in TokenAddress.Token. They distinguish a
// rotated token from earlier ones.
const TokenHashPrefixLength = 16

// ReportedAddress is an address in requests.addresses that the manager reported by an event.
type ReportedAddress struct {
	// address is the IP address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	Address string `json:"address,omitempty"`

	// firstUsedTime is the firstUsedTime of the address when it was reported. The address is reported again if another
	// token is used from it, or another host uses it, because it then has another firstUsedTime.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="it must be later than the year 1999"
	FirstUsedTime metav1.MicroTime `json:"firstUsedTime,omitempty,omitzero"`
}
