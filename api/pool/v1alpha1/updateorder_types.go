package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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
	// maxUnavailable is how many hosts of all pools together can be unavailable at a time because they are updated: a
	// number, or a percentage of these hosts, rounded down. A result of 0 is 1. Hosts that are unavailable for other
	// reasons count. The limits of the pools apply, too. If it is not set, only these apply.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9]?[0-9])%$')",message="it must be a number of at least 1, or a percentage such as \"10%\""
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// failureDomainLabel is the key of a Node label, such as example.com/rack. Of all pools together, only hosts with
	// the same value are updated at a time.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="it must be a label key, such as example.com/rack"
	FailureDomainLabel string `json:"failureDomainLabel,omitempty"`

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

// HasLimit reports whether the settings limit how many hosts of all pools are updated at a time.
func (s *ClusterUpdateSettings) HasLimit() bool {
	return s.MaxUnavailable != nil || s.FailureDomainLabel != ""
}

// SlotIntent is a host that a pool is about to give a slot.
type SlotIntent struct {
	// pool is the name of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`

	// poolVersion is the resourceVersion of the pool to which the write of the slot is locked. The intent counts only
	// while the pool has this version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PoolVersion string `json:"poolVersion,omitempty"`

	// host is the name of the host's PoolbootConfig.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// time is when the intent was written. It counts for 75 seconds at most.
	// +required
	Time *metav1.Time `json:"time,omitempty"`
}
