package v1alpha1

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
