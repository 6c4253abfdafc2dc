package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnrollmentTokenType is the type of Secrets that hold an enrollment token. Such a Secret is in the namespace of its pool and
// names the Cluster by the label cluster.x-k8s.io/cluster-name; its other keys are those below, all required but addressRanges.
const EnrollmentTokenType corev1.SecretType = "pool.cluster.x-k8s.io/enrollment-token"

// Keys of a Secret of EnrollmentTokenType.
const (
	// EnrollmentTokenKey is the token itself: at least 32 characters, best 256 random bits.
	EnrollmentTokenKey = "token"
	// EnrollmentRoleKey is the role of the pool that the token admits hosts to.
	EnrollmentRoleKey = "role"
	// EnrollmentNamesKey is the pattern of the names that hosts may take: "*" stands for any characters, "?" for one, "[…]" for
	// one of several.
	EnrollmentNamesKey = "names"
	// EnrollmentUsesKey is how many names may be taken: 1 to 1000.
	EnrollmentUsesKey = "uses"
	// EnrollmentExpiresKey is when the token ends (RFC 3339).
	EnrollmentExpiresKey = "expires"
	// EnrollmentAddressRangesKey names the address ranges of the hosts, as CIDRs separated by commas. The address that a host enrolled
	// from may be in its kubelet's serving certificate only if it is in one of them. Optional.
	EnrollmentAddressRangesKey = "addressRanges"
)

// MaxEnrollmentRequests is how many hosts the status of an Enrollment holds that asked and are not admitted.
const MaxEnrollmentRequests = 200

// EnrollmentSpec is what an enrollment token admits, and whom it admitted. It is read from the Secret of the same name, all
// but the token itself.
type EnrollmentSpec struct {
	// clusterName is the Cluster that hosts join.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// poolRole is the role of the pool which hosts are admitted to.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PoolRole string `json:"poolRole,omitempty"`

	// namePattern is the pattern of the names that hosts may take.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NamePattern string `json:"namePattern,omitempty"`

	// maxUses is how many names may be taken.
	// +optional
	// +kubebuilder:validation:Maximum=1000
	MaxUses int32 `json:"maxUses,omitempty"`

	// expirationTime is when the token ends.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`

	// addressRanges are the address ranges of the hosts, as CIDRs. The address that a host enrolled from may be in its kubelet's serving
	// certificate only if it is in one of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	AddressRanges []string `json:"addressRanges,omitempty"`

	// tokenSHA256 is the SHA-256 of the token, bound to the namespace, name and UID of its Secret, in hex. Empty while the
	// Secret is not valid: then no host is answered.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TokenSHA256 string `json:"tokenSHA256,omitempty"`

	// secretUID is the UID of the Secret that tokenSHA256 is bound to. While the Secret that owns this Enrollment has another one, as
	// after clusterctl move, no host is answered.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SecretUID string `json:"secretUID,omitempty"`

	// admitted are the names that were taken, in the order in which they were. Each is one use, however often its host asks
	// or is installed anew; it is kept here, not in the status, so that it survives clusterctl move.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	Admitted []string `json:"admitted,omitempty"`
}

// EnrollmentRequest is a host that asks to be admitted.
type EnrollmentRequest struct {
	// requestedTime is when it last asked.
	// +required
	RequestedTime metav1.MicroTime `json:"requestedTime"`

	// address is where it asked from.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`

	// tokenSHA256 is the spec's tokenSHA256 that accepted the token which it presented.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TokenSHA256 string `json:"tokenSHA256,omitempty"`

	// refused is why it was not admitted; empty while that is not decided.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Refused string `json:"refused,omitempty"`
}

// EnrollmentStatus is what is known of an enrollment token.
type EnrollmentStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// usedCount is the number of names that were taken.
	// +optional
	UsedCount *int32 `json:"usedCount,omitempty"`

	// url is where hosts ask, but for their name: <url>?name=<name>.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// certificateAuthority is what hosts verify the config server by, in PEM; empty when their image knows it.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CertificateAuthority string `json:"certificateAuthority,omitempty"`

	// requests are hosts that asked and are not admitted, by the name they ask for. The config server writes them, and
	// Poolboot's manager takes them away.
	// +optional
	// +kubebuilder:validation:MaxProperties=200
	Requests map[string]EnrollmentRequest `json:"requests,omitempty"`

	// conditions are Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Enrollment is what everybody may know of an enrollment token: whom it admits to which pool, and whom it has admitted.
// Poolboot makes it from the Secret of the same name; change the Secret, not this.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=enrollments,scope=Namespaced,shortName=pbenroll,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io/move=","cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,priority=1
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.poolRole`
// +kubebuilder:printcolumn:name="Names",type=string,JSONPath=`.spec.namePattern`
// +kubebuilder:printcolumn:name="Uses",type=integer,JSONPath=`.spec.maxUses`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.usedCount`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Enrollment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the token admits, and whom it admitted.
	// +optional
	Spec EnrollmentSpec `json:"spec,omitempty,omitzero"`
	// status is what is known of the token.
	// +optional
	Status EnrollmentStatus `json:"status,omitempty,omitzero"`
}

// EnrollmentList is a list of Enrollments.
//
// +kubebuilder:object:root=true
type EnrollmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Enrollment `json:"items"`
}

// EnrollmentReadyCondition is true while an enrollment token admits hosts.
const EnrollmentReadyCondition = "Ready"

// Reasons of the condition Ready of an Enrollment.
const (
	EnrollmentAdmitsReason       = "Admits"
	EnrollmentInvalidReason      = "InvalidSecret"
	EnrollmentExpiredReason      = "Expired"
	EnrollmentUsedUpReason       = "UsedUp"
	EnrollmentPoolNotFoundReason = "PoolNotFound"
	EnrollmentNoTemplateReason   = "PoolTakesMachinesOnly"
	EnrollmentBadTemplateReason  = "TemplateNotUsable"
)

// Events of an enrollment, on the pool, on the Enrollment and, once there is one, on the host's PoolbootConfig.
const (
	// EventHostAdmitted is one use of an enrollment token.
	EventHostAdmitted = "HostAdmitted"
	// EventHostRelocated is an admitted host that asks from another address now, which is no further use.
	EventHostRelocated = "HostRelocated"
	// EventHostRefused is a host that presented a valid token and was not admitted.
	EventHostRefused = "HostRefused"
)
