// Package v1beta2 has those fields of Cluster API's Metal3 provider's kinds that the simulator and its users need. The
// provider's own types are in no module that can be required; fields that are not here are kept as they are.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

// HostAnnotation on a Metal3Machine names the BareMetalHost that it runs on, as <namespace>/<name>.
const HostAnnotation = "metal3.io/BareMetalHost"

// MachineFinalizer keeps a Metal3Machine until its host is free.
const MachineFinalizer = "metal3machine.infrastructure.cluster.x-k8s.io"

// Condition types of a Metal3Machine, and the reasons that the simulator gives.
const (
	AssociateBareMetalHostCondition         = "AssociateBareMetalHost"
	AssociateBareMetalHostSuccessReason     = "AssociateBareMetalHostSuccess"
	AssociateBareMetalHostFailedReason      = "AssociateBareMetalHostFailed"
	WaitingForBootstrapDataReason           = clusterv1.WaitingForBootstrapDataReason
	WaitingForClusterReason                 = clusterv1.WaitingForClusterInfrastructureReadyReason
	AssociateMetal3MachineMetaDataCondition = "AssociateMetal3MachineMetaData"
	AssociateMetal3MachineMetaDataReason    = "AssociateMetal3MachineMetaDataSuccess"
	Metal3DataReadyCondition                = "Metal3DataReady"
	SecretsSetExternallyReason              = "SecretsSetExternally"
	Metal3DataSecretsReadyReason            = "Metal3DataSecretsReady"
	WaitingForMetal3DataReason              = "WaitingForMetal3Data"
	CreateMachineErrorReason                = "CreateError"
	DeletingReason                          = clusterv1.DeletingReason
)

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Metal3Cluster{}, &Metal3ClusterList{},
		&Metal3ClusterTemplate{}, &Metal3ClusterTemplateList{},
		&Metal3Machine{}, &Metal3MachineList{},
		&Metal3MachineTemplate{}, &Metal3MachineTemplateList{},
		&Metal3DataTemplate{}, &Metal3DataTemplateList{},
		&Metal3DataClaim{}, &Metal3DataClaimList{},
		&Metal3Data{}, &Metal3DataList{},
		&Metal3Remediation{}, &Metal3RemediationList{},
		&Metal3RemediationTemplate{}, &Metal3RemediationTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// InitializationStatus is what Cluster API waits for.
type InitializationStatus struct {
	// provisioned is true once the object is fully provisioned.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// Metal3ClusterSpec says where the cluster's API is.
type Metal3ClusterSpec struct {
	// controlPlaneEndpoint is the cluster's API server.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
	// cloudProviderEnabled says that something else sets the Nodes' provider IDs; the simulator does not support true.
	// +optional
	CloudProviderEnabled *bool `json:"cloudProviderEnabled,omitempty"`
}

// Metal3ClusterStatus is what is known of the cluster.
type Metal3ClusterStatus struct {
	// conditions has Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// initialization is what Cluster API waits for.
	// +optional
	Initialization InitializationStatus `json:"initialization,omitempty,omitzero"`
}

// Metal3Cluster is the infrastructure of a Cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3clusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3ClusterSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status Metal3ClusterStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions, for Cluster API's libraries.
func (c *Metal3Cluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions, for Cluster API's libraries.
func (c *Metal3Cluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// Metal3ClusterTemplateResource is the Metal3Cluster that a template makes.
type Metal3ClusterTemplateResource struct {
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3ClusterSpec `json:"spec"`
}

// Metal3ClusterTemplateSpec holds the Metal3Cluster to make.
type Metal3ClusterTemplateSpec struct {
	// template is the Metal3Cluster to make.
	Template Metal3ClusterTemplateResource `json:"template"`
}

// Metal3ClusterTemplate is the Metal3Cluster of every Cluster of a ClusterClass.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3clustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3ClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3ClusterTemplateSpec `json:"spec"`
}

// Image is what is written to a host's disk.
type Image struct {
	// url is where the image is.
	// +optional
	URL string `json:"url,omitempty"`
	// checksum is the image's checksum, or where it is.
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// checksumType is md5, sha256, sha512 or auto.
	// +optional
	ChecksumType string `json:"checksumType,omitempty"`
	// diskFormat is raw, qcow2, vdi, vmdk or live-iso.
	// +optional
	DiskFormat string `json:"diskFormat,omitempty"`
}

// CustomDeploy is a deploy procedure of one's own.
type CustomDeploy struct {
	// method is the procedure's name.
	// +optional
	Method string `json:"method,omitempty"`
}

// Metal3MachineSpec says which hosts fit and what is put on them.
type Metal3MachineSpec struct {
	// providerID is the Node's: metal3://<namespace>/<BareMetalHost>/<Metal3Machine>. The provider sets it.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// image is what is written to the host's disk; either it or customDeploy is needed.
	// +optional
	Image Image `json:"image,omitempty,omitzero"`
	// customDeploy is a deploy procedure of one's own.
	// +optional
	CustomDeploy CustomDeploy `json:"customDeploy,omitempty,omitzero"`
	// userData names a Secret to use if the Machine has no bootstrap data Secret of its own.
	// +optional
	UserData *corev1.SecretReference `json:"userData,omitempty"`
	// hostSelector selects the BareMetalHosts that fit, by their labels. Left out, all do.
	// +optional
	HostSelector *metav1.LabelSelector `json:"hostSelector,omitempty"`
	// dataTemplate names the Metal3DataTemplate of the host's metadata and network data.
	// +optional
	DataTemplate *ObjectReference `json:"dataTemplate,omitempty"`
	// metaData names a Secret of the user with the metadata.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// networkData names a Secret of the user with the network data.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
}

// Metal3MachineStatus is what is known of the machine.
type Metal3MachineStatus struct {
	// conditions are Ready, AssociateBareMetalHost, AssociateMetal3MachineMetaData and Metal3DataReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// addresses are the host's.
	// +optional
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// initialization is what Cluster API waits for.
	// +optional
	Initialization InitializationStatus `json:"initialization,omitempty,omitzero"`
	// userData names the Secret that the host boots with.
	// +optional
	UserData *corev1.SecretReference `json:"userData,omitempty"`
	// renderedData names the Metal3Data.
	// +optional
	RenderedData *ObjectReference `json:"renderedData,omitempty"`
	// metaData names the Secret with the host's metadata.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// networkData names the Secret with the host's network data.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
}

// Metal3Machine is the infrastructure of a Machine: a BareMetalHost, once one is found.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3machines,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3MachineSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status Metal3MachineStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions, for Cluster API's libraries.
func (m *Metal3Machine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions, for Cluster API's libraries.
func (m *Metal3Machine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Metal3MachineTemplateResource is the Metal3Machine that a template makes.
type Metal3MachineTemplateResource struct {
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3MachineSpec `json:"spec"`
}

// Metal3MachineTemplateSpec holds the Metal3Machine to make.
type Metal3MachineTemplateSpec struct {
	// nodeReuse keeps a host that a Machine gives back for the next Machine of the same MachineDeployment.
	// +optional
	NodeReuse *bool `json:"nodeReuse,omitempty"`
	// template is the Metal3Machine to make.
	Template Metal3MachineTemplateResource `json:"template"`
}

// Metal3MachineTemplate is the Metal3Machine of every Machine of a MachineDeployment.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3machinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3MachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3MachineTemplateSpec `json:"spec"`
}

// Metal3ClusterList is a list of Metal3Clusters.
//
// +kubebuilder:object:root=true
type Metal3ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Cluster `json:"items"`
}

// Metal3ClusterTemplateList is a list of Metal3ClusterTemplates.
//
// +kubebuilder:object:root=true
type Metal3ClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3ClusterTemplate `json:"items"`
}

// Metal3MachineList is a list of Metal3Machines.
//
// +kubebuilder:object:root=true
type Metal3MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Machine `json:"items"`
}

// Metal3MachineTemplateList is a list of Metal3MachineTemplates.
//
// +kubebuilder:object:root=true
type Metal3MachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3MachineTemplate `json:"items"`
}
