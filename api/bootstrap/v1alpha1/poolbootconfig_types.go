package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PoolbootConfigSpec defines how one host boots into its pool: the host of a Machine, or the host that it names.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!(has(self.host) && has(self.poolRetention) && self.poolRetention == 'Host')",message="Host needs a Machine: leave it out",fieldPath=".poolRetention",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.host) || has(self.poolRole)",message="host needs poolRole: without a Machine there are no labels to decide by",fieldPath=".poolRole",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!(has(self.host) && has(self.configSource) && self.configSource.type == 'Inline')",message="a host without a Machine needs configSource.type Server",fieldPath=".configSource.type",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.join) || has(self.host) && self.host.type == 'Node'",message="it says how the host joins the cluster",fieldPath=".join",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.join) || !has(self.host) || self.host.type != 'Node'",message="a host of type Node has joined before: leave it out",fieldPath=".join",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!(has(self.host) && self.host.type == 'Node') || !has(self.configSource) && !has(self.nodeNameSource)",message="a host of type Node does not boot: leave out configSource and nodeNameSource",fieldPath=".host.type",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.poolRole) || self.poolRole != 'control-plane' || has(self.host) && self.host.type == 'Node'",message="hosts of the control plane boot by the control plane provider, and only an adopted Node can be in this pool: use its bootstrap config, and adopt the Nodes",fieldPath=".poolRole",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.host) == has(oldSelf.host)",message="host can't be added or removed: create another PoolbootConfig",fieldPath=".host",reason=FieldValueForbidden
type PoolbootConfigSpec struct {
	BootSpec `json:",inline"`

	// host names the host of a PoolbootConfig that is no Machine's bootstrap config. Poolboot sets it for the hosts
	// that a pool admits; you set it to adopt a Node.
	// +optional
	Host HostWithoutMachine `json:"host,omitempty,omitzero"`
}

// HostType is the kind of a host that does not boot with the bootstrap config of a Machine.
//
// +kubebuilder:validation:Enum=BareMetalHost;Enrollment;Node
type HostType string

const (
	// HostTypeBareMetalHost is a BareMetalHost whose annotation poolboot.io/pool-role requests a pool.
	HostTypeBareMetalHost HostType = "BareMetalHost"
	// HostTypeEnrollment is a host that an Enrollment admitted. Only its name and address are known; the address is in
	// the annotation poolboot.io/enrolled-from.
	HostTypeEnrollment HostType = "Enrollment"
	// HostTypeNode is a host that Poolboot did not boot, and whose Node exists. It can be the host of a Machine with
	// another bootstrap provider.
	HostTypeNode HostType = "Node"
)

// AdoptionPolicy is what a host that Poolboot did not boot gets of its pool.
//
// +kubebuilder:validation:Enum=Preview;Follow
type AdoptionPolicy string

const (
	// AdoptionPreview keeps the host as it was found, or returns it to that, and reports what its pool would change.
	AdoptionPreview AdoptionPolicy = "Preview"
	// AdoptionFollow puts the Node in the pool, and updates the host to the pool's configuration.
	AdoptionFollow AdoptionPolicy = "Follow"
)

// HostWithoutMachine is a host that does not boot with the bootstrap config of a Machine.
//
// +kubebuilder:validation:XValidation:rule="has(self.adoption) == (self.type == 'Node')",message="adoption is required with type Node and forbidden otherwise",fieldPath=".adoption"
// +kubebuilder:validation:XValidation:rule="has(self.bareMetalHostName) == (self.type == 'BareMetalHost')",message="bareMetalHostName is required with type BareMetalHost and forbidden otherwise",fieldPath=".bareMetalHostName"
// +kubebuilder:validation:XValidation:rule="has(self.enrollment) == (self.type == 'Enrollment')",message="enrollment is required with type Enrollment and forbidden otherwise",fieldPath=".enrollment"
type HostWithoutMachine struct {
	// type is what the host is: a BareMetalHost, a host that an Enrollment admitted, or a host that Poolboot did not
	// boot and whose Node exists. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another PoolbootConfig"
	Type HostType `json:"type,omitempty"`

	// nodeName is the name of the host's Node. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another PoolbootConfig"
	NodeName string `json:"nodeName,omitempty"`

	// bareMetalHostName is the name of the BareMetalHost, in the same namespace, whose annotation
	// poolboot.io/pool-role requests the pool. It is immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another PoolbootConfig"
	BareMetalHostName string `json:"bareMetalHostName,omitempty"`

	// adoption is what a host of type Node gets of its pool. Preview keeps the host as it was found, without labels of
	// the pool on its Node, and reports in the condition Updated what the pool would change on it. Follow puts the Node
	// in the pool of poolRole, and updates the host like others of that pool. A change from Follow to Preview returns
	// the host to what it was.
	// +optional
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// enrollment is the Enrollment that admitted the host.
	// +optional
	Enrollment EnrolledHost `json:"enrollment,omitempty,omitzero"`
}

// EnrolledHost is a host that an Enrollment admitted.
type EnrolledHost struct {
	// name is the name of the Enrollment, in the same namespace. The host's token is valid only while the token of the
	// Enrollment is valid. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it is immutable: create another PoolbootConfig"
	Name string `json:"name,omitempty"`

	// addressRanges are the Enrollment's address ranges when the host was admitted. They apply when the Enrollment was
	// deleted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r))",message="each address range must be a CIDR"
	AddressRanges []string `json:"addressRanges,omitempty"`
}

// Enrolled returns the host if an Enrollment admitted it, nil otherwise.
func (s *PoolbootConfigSpec) Enrolled() *EnrolledHost {
	if s.Host.Type != HostTypeEnrollment {
		return nil
	}
	return &s.Host.Enrollment
}

// EnrollmentName returns the name of the Enrollment that admitted the host, or "" for other hosts.
func (s *PoolbootConfigSpec) EnrollmentName() string {
	if enrolled := s.Enrolled(); enrolled != nil {
		return enrolled.Name
	}
	return ""
}

// IsDefined reports whether the PoolbootConfig names a host.
func (h *HostWithoutMachine) IsDefined() bool { return h.Type != "" }

// PoolbootConfigInitializationStatus provides observations of the initialization process, as the Cluster API contract
// defines them.
//
// +kubebuilder:validation:MinProperties=1
type PoolbootConfigInitializationStatus struct {
	// dataSecretCreated is true once the Machine's data Secret is complete.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// PoolbootConfigStatus is the observed state of a Machine's boot.
//
// +kubebuilder:validation:MinProperties=1
type PoolbootConfigStatus struct {
	// conditions are Ready, DataSecretAvailable, PoolDecided, BootPrepared, NodeInPool and Paused; also Updated if the
	// host has joined, TokenUsable if the host's token has ever expired, IgnitionSucceeded if the host has ever
	// reported that Ignition failed, VersionsFit while the host reports that its versions keep it from joining, and
	// UserDataSet if spec.host names a BareMetalHost.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization provides observations of the initialization process. Cluster API reads it.
	// +optional
	Initialization PoolbootConfigInitializationStatus `json:"initialization,omitempty,omitzero"`

	// dataSecretName is the name of the Secret that holds the bootstrap data. It is the name of the PoolbootConfig.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	DataSecretName string `json:"dataSecretName,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// poolRole is the role of the pool in which the Machine is recorded. A Node that is deleted and registers again
	// gets the labels of this pool.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PoolRole string `json:"poolRole,omitempty"`

	// fallbackPoolRole is the role of the pool that takes the running host if its pool is deleted: the pool that the
	// labels of its Node name then. It is absent if they name none, or several.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	FallbackPoolRole string `json:"fallbackPoolRole,omitempty"`

	// hostRef is the BareMetalHost that the Machine runs on. Before that host requests its configuration, it is the one
	// that the infrastructure provider chose.
	// +optional
	HostRef HostReference `json:"hostRef,omitempty,omitzero"`

	// hostAddresses are the known addresses of the BareMetalHost. They are set while the host's token is bound to them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(address, isIP(address))",message="each must be an IP address"
	HostAddresses []string `json:"hostAddresses,omitempty"`

	// nodeRef is the Node that was pre-registered for the Machine.
	// +optional
	NodeRef NodeReference `json:"nodeRef,omitempty,omitzero"`

	// derivedNodeLabels are the labels that label rules derived from the facts of the host when the Node was
	// registered. A Node that is deleted and registers again gets them back.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317 && size(self[key]) <= 63)",message="a key must have at most 317 characters, and a value at most 63"
	DerivedNodeLabels map[string]string `json:"derivedNodeLabels,omitempty"`

	// requests is what the config server records about the requests of the host.
	// +optional
	Requests HostRequests `json:"requests,omitempty,omitzero"`

	// reportedAddresses are the addresses in requests.addresses that were reported by an event, because they are not
	// the first one, or because the token is not bound to them.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=16
	ReportedAddresses []ReportedAddress `json:"reportedAddresses,omitempty"`

	// certificate is the kubelet's client certificate for which a join credential was last used. Each credential
	// obtains one certificate.
	// +optional
	Certificate GrantedCertificate `json:"certificate,omitempty,omitzero"`

	// boot is the timeline of the host's boot.
	// +optional
	Boot BootStatus `json:"boot,omitempty,omitzero"`

	// configServer is where the agent of an adopted host gets its configuration. kubectl poolboot install-agent reads
	// it.
	// +optional
	ConfigServer ConfigServerReference `json:"configServer,omitempty,omitzero"`

	// update is what the running host should run, and when its Node was pre-registered for a later boot.
	// +optional
	Update UpdateStatus `json:"update,omitempty,omitzero"`
}

// ConfigServerReference is how hosts reach the config server.
//
// +kubebuilder:validation:MinProperties=1
type ConfigServerReference struct {
	// url is the URL of the config server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// certificateAuthority is the PEM bundle that verifies the certificate of the config server. If it is empty, hosts
	// trust the certificate already.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
}

// PoolbootConfig is the bootstrap config of one Machine. It defines which pool the Machine boots into, where the host
// gets its configuration from and how it joins the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=poolbootconfigs,scope=Namespaced,shortName=pbconf,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1"}
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.status.poolRole`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.hostRef.name`,priority=1
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeRef.name`
// +kubebuilder:printcolumn:name="InPool",type=string,JSONPath=`.status.conditions[?(@.type=="NodeInPool")].status`,priority=1
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Updated")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type PoolbootConfig struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec defines how the Machine boots into its pool.
	// +required
	Spec PoolbootConfigSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state of the Machine's boot.
	// +optional
	Status PoolbootConfigStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions, for Cluster API's condition and patch libraries.
func (c *PoolbootConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions, for Cluster API's condition and patch libraries.
func (c *PoolbootConfig) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// PoolbootConfigList is a list of PoolbootConfigs.
//
// +kubebuilder:object:root=true
type PoolbootConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PoolbootConfig `json:"items"`
}
