package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnrollmentTokenType is the type of Secrets that hold an enrollment token. Poolboot reads no Secret of another type
// for an Enrollment.
const EnrollmentTokenType corev1.SecretType = "poolboot.io/enrollment-token"

// EnrollmentTokenKey is the key of the token in a Secret of EnrollmentTokenType: 32 to 512 characters that are valid in
// a bearer token. 256 random bits are recommended.
const EnrollmentTokenKey = "token"

// MaxEnrollmentRequests is the maximum number of entries in the status.requests of an Enrollment.
const MaxEnrollmentRequests = 200

// EnrollmentSpec defines which hosts a token admits to which pool.
//
// +kubebuilder:validation:XValidation:rule="!(self.poolRole in ['master', 'control-plane'])",message="hosts of the control plane boot by the control plane provider: poolRole must not be master or control-plane",fieldPath=".poolRole"
type EnrollmentSpec struct {
	// clusterName is the name of the Cluster, in the same namespace, that hosts join. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another Enrollment"
	ClusterName string `json:"clusterName,omitempty"`

	// poolRole is the role of the pool that hosts are admitted to. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another Enrollment"
	PoolRole string `json:"poolRole,omitempty"`

	// namePattern is the pattern of the names that hosts can request: * matches any characters, ? matches one
	// character, [a-f0-9] one of the listed characters and [^0-9] one that is not listed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])+$`
	NamePattern string `json:"namePattern,omitempty"`

	// maxUses is the maximum number of names that are admitted. Increase it to admit more hosts.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxUses int32 `json:"maxUses,omitempty"`

	// expirationTime is the time at which the token expires. From then on it admits no hosts, and admitted hosts that
	// have not joined get no configuration.
	// +required
	ExpirationTime metav1.Time `json:"expirationTime,omitempty,omitzero"`

	// tokenSecretRef names the Secret with the token.
	// +required
	TokenSecretRef TokenSecretReference `json:"tokenSecretRef,omitempty,omitzero"`

	// addressRanges are the networks of the hosts, as CIDRs. The kubelet's serving certificate can contain the address
	// that the host enrolled from only if the address is in one of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r) && cidr(r) == cidr(r).masked() && cidr(r).prefixLength() > 0)",message="each address range must be a CIDR without host bits, such as 192.0.2.0/24 or 2001:db8::/64, and must not contain all addresses"
	AddressRanges []string `json:"addressRanges,omitempty"`
}

// TokenSecretReference names a Secret of EnrollmentTokenType in the Enrollment's namespace.
type TokenSecretReference struct {
	// name is the Secret's name. The Secret must be of type poolboot.io/enrollment-token and have the key
	// token: 32 to 512 random characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`
}

// EnrollmentRequest is a host that requests to be admitted.
type EnrollmentRequest struct {
	// name is the name that the host requests.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// requestedTime is the time of the host's last request.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="it must be later than the year 1999"
	RequestedTime metav1.MicroTime `json:"requestedTime,omitempty,omitzero"`

	// address is the IP address that the host's last request came from.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="it must be an IP address"
	Address string `json:"address,omitempty"`

	// tokenSHA256 is the Enrollment's status.tokenSHA256 that the host's token matched.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]*$`
	TokenSHA256 string `json:"tokenSHA256,omitempty"`

	// refused is the reason why the host was not admitted. It is absent until the manager has decided.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Refused string `json:"refused,omitempty"`
}

// EnrollmentStatus is the observed state of an Enrollment and the requests of hosts.
//
// +kubebuilder:validation:MinProperties=1
type EnrollmentStatus struct {
	// conditions are Ready and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// tokenSHA256 is the SHA-256 of the token, bound to the namespace and name of the Enrollment and the UID of the
	// Secret, in hex. It is absent while there is no valid Secret; then no host is admitted.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]*$`
	TokenSHA256 string `json:"tokenSHA256,omitempty"`

	// tokenSecretUID is the UID of the Secret that tokenSHA256 is bound to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TokenSecretUID string `json:"tokenSecretUID,omitempty"`

	// usedCount is the number of admitted names.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UsedCount *int32 `json:"usedCount,omitempty"`

	// url is the config server's URL for the hosts' requests. A host appends its name: <url>?name=<name>.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// certificateAuthority is the CA certificate with which hosts verify the config server, in PEM. It is absent when
	// the hosts' image trusts the CA.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	CertificateAuthority string `json:"certificateAuthority,omitempty"`

	// requests are hosts that requested to be admitted and are not admitted. The config server adds them. Poolboot's
	// manager sets the reason if a host is refused, and removes them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=200
	Requests []EnrollmentRequest `json:"requests,omitempty"`
}

// Enrollment admits hosts without a Machine to a pool, by a token that they share. The token is in a Secret.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=enrollments,scope=Namespaced,shortName=pbenroll,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io/move=","cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.poolRole`
// +kubebuilder:printcolumn:name="Names",type=string,JSONPath=`.spec.namePattern`,priority=1
// +kubebuilder:printcolumn:name="Uses",type=integer,JSONPath=`.spec.maxUses`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.usedCount`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Enrollment struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec defines which hosts the token admits.
	// +required
	Spec EnrollmentSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the Enrollment and the requests of hosts.
	// +optional
	Status EnrollmentStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the Enrollment's conditions, for Cluster API's condition and patch libraries.
func (e *Enrollment) GetConditions() []metav1.Condition { return e.Status.Conditions }

// SetConditions replaces the Enrollment's conditions, for Cluster API's condition and patch libraries.
func (e *Enrollment) SetConditions(conditions []metav1.Condition) { e.Status.Conditions = conditions }

// AdmittedNames returns the names that the Enrollment has admitted.
func (e *Enrollment) AdmittedNames() []string {
	return strings.FieldsFunc(e.Annotations[AdmittedAnnotation], func(r rune) bool { return r == ',' })
}

// SetAdmittedNames records the names that the Enrollment has admitted.
func (e *Enrollment) SetAdmittedNames(names []string) {
	metav1.SetMetaDataAnnotation(&e.ObjectMeta, AdmittedAnnotation, strings.Join(names, ","))
}

// EnrollmentList is a list of Enrollments.
//
// +kubebuilder:object:root=true
type EnrollmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Enrollment `json:"items"`
}

// EnrollmentReadyCondition is true while an Enrollment admits hosts.
const EnrollmentReadyCondition = "Ready"

// Reasons of the condition Ready of an Enrollment.
const (
	EnrollmentAdmitsReason                = "Admits"
	EnrollmentSecretNotFoundReason        = "SecretNotFound"
	EnrollmentInvalidSecretReason         = "InvalidSecret"
	EnrollmentInvalidNamePatternReason    = "InvalidNamePattern"
	EnrollmentExpiredReason               = "Expired"
	EnrollmentUsedUpReason                = "UsedUp"
	EnrollmentPoolNotFoundReason          = "PoolNotFound"
	EnrollmentPoolTakesMachinesOnlyReason = "PoolTakesMachinesOnly"
	EnrollmentTemplateNotUsableReason     = "TemplateNotUsable"
	EnrollmentMovedReason                 = "Moved"
)

// Reasons of events about an enrollment: on the pool, on the Enrollment and, if it exists, on the host's
// PoolbootConfig.
const (
	// EventHostAdmitted reports that a host was admitted, which is one use of the enrollment token.
	EventHostAdmitted = "HostAdmitted"
	// EventHostRelocated reports that an admitted host has another address now. This is not another use of the token.
	EventHostRelocated = "HostRelocated"
	// Warning: A host with a valid token was not admitted. The message says why.
	EventHostRefused = "HostRefused"
)
