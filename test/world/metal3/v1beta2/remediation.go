package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RemediationFinalizer keeps a Metal3Remediation until its Node is as it was.
const RemediationFinalizer = "metal3remediation.infrastructure.cluster.x-k8s.io"

// RebootRemediationStrategy is the only strategy that there is.
const RebootRemediationStrategy = "Reboot"

// Phases of a Metal3Remediation.
const (
	// RemediationRunning: the host is powered off and its Node cleared.
	RemediationRunning = "Running"
	// RemediationWaiting: the host is powered on again; the Node has to become healthy.
	RemediationWaiting = "Waiting"
	// RemediationDeleting: rebooting did not help; the Machine is left to its owner.
	RemediationDeleting = "Deleting machine"
	// RemediationFailed: the host is meant to be off.
	RemediationFailed = "Failed"
)

// RemediationStrategy says how to remediate a Machine.
type RemediationStrategy struct {
	// type is Reboot.
	// +optional
	// +kubebuilder:validation:Enum=Reboot
	Type string `json:"type,omitempty"`
	// retryLimit is how often to try again.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	RetryLimit int32 `json:"retryLimit,omitempty"`
	// timeoutSeconds is the time that the Node has to become healthy before the next try.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:default=600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Metal3RemediationSpec says how to remediate a Machine.
type Metal3RemediationSpec struct {
	// strategy is how.
	// +optional
	Strategy *RemediationStrategy `json:"strategy,omitempty"`
}

// Metal3RemediationStatus is how far the remediation is.
type Metal3RemediationStatus struct {
	// phase is Running, Waiting, Deleting machine or Failed.
	// +optional
	// +kubebuilder:validation:Enum=Running;Waiting;Deleting machine;Failed
	Phase string `json:"phase,omitempty"`
	// retryCount is how often it was tried again.
	// +optional
	RetryCount int32 `json:"retryCount,omitempty"`
	// lastRemediated is when the last try began.
	// +optional
	LastRemediated *metav1.Time `json:"lastRemediated,omitempty"`
}

// Metal3Remediation is the remediation of the Machine that owns it. A MachineHealthCheck creates it when the Machine is
// unhealthy and deletes it when the Machine is healthy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3remediations,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3Remediation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3RemediationSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status Metal3RemediationStatus `json:"status,omitempty"`
}

// Metal3RemediationTemplateResource is the Metal3Remediation that a template makes.
type Metal3RemediationTemplateResource struct {
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3RemediationSpec `json:"spec"`
}

// Metal3RemediationTemplateSpec holds the Metal3Remediation to make.
type Metal3RemediationTemplateSpec struct {
	// template is the Metal3Remediation to make.
	Template Metal3RemediationTemplateResource `json:"template"`
}

// Metal3RemediationTemplate is the Metal3Remediation of every unhealthy Machine of a MachineHealthCheck.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3remediationtemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta2"}
type Metal3RemediationTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec Metal3RemediationTemplateSpec `json:"spec"`
}

// Metal3RemediationList is a list of Metal3Remediations.
//
// +kubebuilder:object:root=true
type Metal3RemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Remediation `json:"items"`
}

// Metal3RemediationTemplateList is a list of Metal3RemediationTemplates.
//
// +kubebuilder:object:root=true
type Metal3RemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3RemediationTemplate `json:"items"`
}
