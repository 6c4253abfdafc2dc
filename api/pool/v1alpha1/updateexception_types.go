package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpdateException is one host of a pool whose updates follow another rule for some time.
type UpdateException struct {
	// node is the name of the host's Node. An exception for a Node that is no host of the pool does nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be the name of a Node, a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Node string `json:"node,omitempty"`

	// action is what differs: Skip means that the host begins no update, and that others do not wait for it.
	// IgnoreWindow means that the host can begin updates while maintenanceWindow is closed, under all other limits.
	// +required
	Action UpdateExceptionAction `json:"action,omitempty"`

	// until is when the exception ends. After it, the exception does nothing.
	// +required
	Until *metav1.Time `json:"until,omitempty"`

	// reason is why the exception exists, for people. Everyone who can read the pool can read it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'[[:cntrl:]]') && self.matches(r'[^ ]')",message="it must be text in one line, without control characters"
	Reason string `json:"reason,omitempty"`
}

// UpdateExceptionAction is what differs for the updates of one host.
//
// +kubebuilder:validation:Enum=Skip;IgnoreWindow
type UpdateExceptionAction string

const (
	// ExceptionSkip lets the host begin no update.
	ExceptionSkip UpdateExceptionAction = "Skip"
	// ExceptionIgnoreWindow lets the host begin updates while the maintenance window is closed.
	ExceptionIgnoreWindow UpdateExceptionAction = "IgnoreWindow"
)

// MaxUpdateExceptions is how many exceptions a pool has at most.
const MaxUpdateExceptions = 32
