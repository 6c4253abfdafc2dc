package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineConfigSource names a MachineConfig that was merged into a rendered config.
type MachineConfigSource struct {
	// name is the MachineConfig's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`
}

// PoolConfiguration is a rendered config and the MachineConfigs that were merged into it.
type PoolConfiguration struct {
	// name is the rendered MachineConfig's name: rendered-<pool>-<hash of its content>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	Name string `json:"name,omitempty"`

	// source lists the MachineConfigs that were merged, in order. It is empty if they are not known, as of an earlier
	// rendered config that has no record of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Source []MachineConfigSource `json:"source,omitempty"`
}

// IsDefined reports whether the pool has a rendered config.
func (c *PoolConfiguration) IsDefined() bool { return c.Name != "" }

// MachineConfigPoolStatus is the observed state of a pool.
//
// +kubebuilder:validation:MinProperties=1
type MachineConfigPoolStatus struct {
	// conditions are Ready, Updated, Updating, Degraded, RenderDegraded, NodeDegraded, UpdateGatesOpen, Pinned and
	// Paused. Paused is true while the Cluster or the pool is paused by Cluster API; it does not reflect spec.paused.
	// Pinned exists only for a pool with spec.configurationName.
	// UpdateGatesOpen exists only for a pool with update gates that were read, or that waits for other pools or
	// canaries.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// configuration is the rendered config that Machines of the pool boot with.
	// +optional
	Configuration PoolConfiguration `json:"configuration,omitempty,omitzero"`

	// renderedConfiguration is the name of the rendered config that the pool rendered last. It differs from
	// configuration while a paused pool holds it back, or spec.configurationName names another one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
	RenderedConfiguration string `json:"renderedConfiguration,omitempty"`

	// history has the rendered configs that the pool handed out last, in this order. After clusterctl move, it is
	// restored without changes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	History []HandedOutConfiguration `json:"history,omitempty"`

	// inputsHash identifies what the pool was rendered from last, or could not be rendered from: the names, UIDs
	// and generations of the worker pool and of the MachineConfigs.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	InputsHash string `json:"inputsHash,omitempty"`

	// hostCount is the number of hosts that are recorded in the pool: those of Machines, and those without a Machine.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HostCount *int32 `json:"hostCount,omitempty"`

	// updatedHostCount is the number of the pool's hosts that run the config that the pool rendered last, or the one
	// that spec.configurationName names. As in OpenShift, this also applies to a paused pool, which holds that config
	// back. Running hosts on which something else is to be updated, such as the flags of the kubelet, are not among
	// them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedHostCount *int32 `json:"updatedHostCount,omitempty"`

	// readyHostCount is the number of updated hosts whose Node is Ready and in the pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyHostCount *int32 `json:"readyHostCount,omitempty"`

	// unavailableHostCount is the number of the pool's hosts whose Node does not exist, is not Ready or is not in the
	// pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnavailableHostCount *int32 `json:"unavailableHostCount,omitempty"`

	// degradedHostCount is the number of the pool's hosts that require a user's action.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DegradedHostCount *int32 `json:"degradedHostCount,omitempty"`

	// agentlessHostCount is the number of the pool's hosts that have joined and run no agent. They keep the config with
	// which they booted until they are replaced.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AgentlessHostCount *int32 `json:"agentlessHostCount,omitempty"`

	// outdatedDisksHostCount is the number of the pool's running hosts that keep the disks with which they were
	// installed, because diskPolicy is NewHostsOnly, although their configuration has others. They count as updated.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutdatedDisksHostCount *int32 `json:"outdatedDisksHostCount,omitempty"`

	// rebootRequiredHostCount is the number of the pool's running hosts whose operating systems need a reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RebootRequiredHostCount *int32 `json:"rebootRequiredHostCount,omitempty"`

	// capacityHostCount is the number of hosts that the pool has when all are available: those that have joined,
	// and those that are gone and whose replacements have not joined. A Machine that is gone and not replaced
	// within a minute is left out, and so is one that boots in addition to the others.
	// +optional
	// +kubebuilder:validation:Minimum=1
	CapacityHostCount int32 `json:"capacityHostCount,omitempty"`

	// rollout is the last change of the pool's running hosts to another configuration.
	// +optional
	Rollout PoolRollout `json:"rollout,omitempty,omitzero"`

	// prediction is what the change to the config that the pool rendered last, or that spec.configurationName names,
	// does to the running hosts that run another one. It is absent if there are none. A paused pool has it too.
	// +optional
	Prediction PoolPrediction `json:"prediction,omitempty,omitzero"`

	// slots are the hosts that can be away for an update, at most as many as maxUnavailable allows. A host gets a slot
	// before it is told to begin an update, and keeps it until its Node is done with that update. Do not change them: a
	// host without a slot begins no update, and one with a slot that should not have it is updated.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	Slots []UpdateSlot `json:"slots,omitempty"`

	// slotsOpenTime is from when on hosts get slots. It is set when the slots are built from the hosts and their Nodes,
	// as after clusterctl move. Without it, they are built again.
	// +optional
	SlotsOpenTime *metav1.Time `json:"slotsOpenTime,omitempty"`

	// slotIntents are hosts that other pools of the cluster are about to give slots. Only the worker pool has them, and
	// only with a limit in spec.updates.cluster. Each pool writes them before its slots, so that no two pools count the
	// same free place. Do not change them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	SlotIntents []SlotIntent `json:"slotIntents,omitempty"`

	// staging are the hosts that download what their next update needs, at most spec.updates.staging.maxHosts, and
	// those that have failed or have not answered for an hour, and try again without a place. A host gets a slot when
	// it has everything.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	Staging []StagingHost `json:"staging,omitempty"`

	// stagedHostCount is the number of hosts that have everything that their next update needs, and wait for it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	StagedHostCount int32 `json:"stagedHostCount,omitempty"`
}

// StagingHost is a host that downloads what its next update needs.
type StagingHost struct {
	// host is the name of the host's PoolbootConfig.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// revision is the SHA-256, in hex, of what the host is to run next.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`

	// startTime is since when the host can download it.
	// +required
	StartTime *metav1.Time `json:"startTime,omitempty"`
}

// HandedOutConfiguration is a rendered config that a pool handed out.
type HandedOutConfiguration struct {
	// name is the rendered MachineConfig's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// startTime is when the pool began to hand it out.
	// +required
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// changes are the MachineConfigs that were added (+) or removed (-) since the config before it, and the entries
	// that were added, changed (~) or removed, such as ~ file /etc/chrony.conf. They are the first ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Changes []string `json:"changes,omitempty"`

	// changeCount is how many entries differ, if that is known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ChangeCount *int32 `json:"changeCount,omitempty"`
}

// Limits of status.history.
const (
	// MaxHistory is the maximum number of entries.
	MaxHistory = 20
	// MaxHistoryChanges is the maximum number of changes of an entry.
	MaxHistoryChanges = 10
)

// UpdateSlot is a host that can be away for an update.
type UpdateSlot struct {
	// id identifies the slot, and is only compared. A host that is to run something else gets another one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`

	// host is the name of the host's PoolbootConfig.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// revision is the SHA-256, in hex, of what the host is to run.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`
}

// PoolPrediction is the number of running hosts by the strongest thing that happens to them when they change their
// configuration. A change for which a host has no program is a replacement.
//
// +kubebuilder:validation:MinProperties=1
type PoolPrediction struct {
	// configuration is the name of the rendered config that the hosts change to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Configuration string `json:"configuration,omitempty"`

	// none is the number of hosts on which only files and other entries change.
	// +optional
	// +kubebuilder:validation:Minimum=0
	None *int32 `json:"none,omitempty"`

	// reload is the number of hosts on which units or systemd reload.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reload *int32 `json:"reload,omitempty"`

	// restart is the number of hosts on which units restart, or that are drained without a reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Restart *int32 `json:"restart,omitempty"`

	// reboot is the number of hosts that are drained and reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reboot *int32 `json:"reboot,omitempty"`

	// replace is the number of hosts that can't change to the configuration while they run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replace *int32 `json:"replace,omitempty"`

	// unknown is the number of hosts whose present rendered config does not exist any more.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown *int32 `json:"unknown,omitempty"`

	// replacedHosts are the names of the Nodes of the first hosts that must be replaced.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ReplacedHosts []string `json:"replacedHosts,omitempty"`
}

// PoolRollout is a change of a pool's running hosts to another configuration, a few at a time.
//
// +kubebuilder:validation:MinProperties=1
type PoolRollout struct {
	// configuration is the name of the rendered config that the hosts change to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Configuration string `json:"configuration,omitempty"`

	// startTime is when the update of the first host was observed.
	// +required
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when no running host had to change any more. It is absent until then.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}
