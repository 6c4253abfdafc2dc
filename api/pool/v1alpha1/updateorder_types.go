package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpdateApproval is who lets the hosts of a pool begin updates to another rendered config.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type UpdateApproval string

const (
	// ApprovalAutomatic lets hosts begin updates to what the pool hands out.
	ApprovalAutomatic UpdateApproval = "Automatic"
	// ApprovalManual lets hosts begin updates only to the rendered config that ApprovedConfigurationAnnotation names.
	ApprovalManual UpdateApproval = "Manual"
)

// ClusterUpdateSettings is what applies to the updates of all pools of a cluster together.
//
// +kubebuilder:validation:MinProperties=1
type ClusterUpdateSettings struct {
	// order are steps: hosts begin updates only when the pools of all earlier steps are ready. Pools that are in no
	// step come last. While a pool of an earlier step is not ready, or does not exist, the condition UpdateGatesOpen of
	// the later pools says so.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="self.all(step, step.pools.all(role, self.exists_one(other, role in other.pools)))",message="a role can be in one step only: remove it from the others"
	Order []UpdateStep `json:"order,omitempty"`
}

// UpdateStep are pools that are updated at the same time.
type UpdateStep struct {
	// pools are the roles of the pools, such as worker.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Pools []string `json:"pools,omitempty"`

	// soakSeconds is how long each of these pools must be ready, without a break, before the next step begins. Defaults
	// to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`
}

// CanarySettings are the first hosts of a pool that are updated, and how long the others wait after that.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.hosts) != has(self.nodeSelector)",message="set either hosts or nodeSelector"
type CanarySettings struct {
	// hosts is how many hosts are canaries: the first ones in the order of the rollout.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Hosts int32 `json:"hosts,omitempty"`

	// nodeSelector selects the Nodes whose hosts are canaries. While it selects none, no host begins an update.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="it must not be empty, because it would match nothing"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakSeconds is how long all canaries must run their update, with a Ready Node and without units that fail, before
	// other hosts begin theirs. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`
}

// IsDefined reports whether a pool has canaries.
func (s *CanarySettings) IsDefined() bool { return s.Hosts > 0 || s.NodeSelector != nil }
