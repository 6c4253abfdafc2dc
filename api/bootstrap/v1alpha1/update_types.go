package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpdateStatus is what a running host should run, and when its Node was pre-registered for a later boot.
//
// +kubebuilder:validation:MinProperties=1
type UpdateStatus struct {
	// desired is the rendered config that the host should run. It differs from the configuration of the pool while
	// other hosts of the pool are updated first.
	// +optional
	Desired ConfigurationReference `json:"desired,omitempty,omitzero"`

	// desiredRevision is the SHA-256, in hex, of everything that the host should run: the rendered config, its own part
	// and the rules for updates.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	DesiredRevision string `json:"desiredRevision,omitempty"`

	// slot is the id of the slot in the status of the pool by which the host was told to begin its update. It is absent
	// if the host is in no update.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Slot string `json:"slot,omitempty"`

	// force is the value of the annotation poolboot.io/force-update that desiredRevision includes. While the
	// annotation has another value, the host was not told yet to apply its configuration again.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Force string `json:"force,omitempty"`

	// restart is the spec.updates.restart.id of the pool that desiredRevision includes. While the pool has another one,
	// the host was not told yet to restart.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Restart string `json:"restart,omitempty"`

	// runningRevision is the revision that the host has, as its agent reports it. If it differs from desiredRevision,
	// the host changes to that, or could not.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	RunningRevision string `json:"runningRevision,omitempty"`

	// unansweredTime is when it was first observed that the host was told what to run and that its agent had not
	// answered. It is absent if the agent has answered.
	// +optional
	UnansweredTime *metav1.Time `json:"unansweredTime,omitempty"`

	// drainTimedOutTime is when it was first observed that the drain takes longer than spec.updates.drainTimeoutSeconds
	// of the pool. It is absent while no drain does.
	// +optional
	DrainTimedOutTime *metav1.Time `json:"drainTimedOutTime,omitempty"`

	// stage is what the update of the running host has reached: Starting if the agent has not answered yet, Draining
	// while the Node is drained, Applying while the host is changed, Rebooting, and Verifying while its Node must
	// become Ready and stay so. It is not set while the host is not being updated.
	// +optional
	Stage UpdateStage `json:"stage,omitempty"`

	// stageTime is since when the update is in that stage.
	// +optional
	StageTime *metav1.Time `json:"stageTime,omitempty"`

	// stateTime is since when the condition Updated has its reason.
	// +optional
	StateTime *metav1.Time `json:"stateTime,omitempty"`

	// unavailableReason is why the host takes a place of the pool's maxUnavailable although its Node is Ready, apart
	// from an update: Cordoned by a user or another program, MachineChanging if Cluster API deletes, remediates or
	// updates the Machine in place, KubeletFailing if the kubelet does not stay up. It is also set while the host is
	// being updated. Such a host begins no update, except if its kubelet fails.
	// +optional
	UnavailableReason UnavailableReason `json:"unavailableReason,omitempty"`

	// agentVersion is the version that the agent of the host reports.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	AgentVersion string `json:"agentVersion,omitempty"`

	// unsupportedChanges are the kinds of changes for which the host has no program, as its agent reports:
	// KernelArguments, OSImage for osImageURL, Extensions for extensions and kernelType. Such a change needs an image
	// with the program, or another host. Kexec and SoftReboot are reboot methods that the host lacks: it reboots fully.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Enum=KernelArguments;OSImage;Extensions;Kexec;SoftReboot
	UnsupportedChanges []string `json:"unsupportedChanges,omitempty"`

	// outdatedDisks are the first disks, RAID arrays, LUKS volumes, file systems, mount units and tables of mounts of
	// the configuration that the host does not have, as its agent reports: it keeps those with which it was installed,
	// because the diskPolicy of its pool is NewHostsOnly. Each entry has a kind, and a device or name, such as
	// filesystem /dev/md/data; without a name, the order of the entries differs. A host that is installed again has
	// them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	OutdatedDisks []string `json:"outdatedDisks,omitempty"`

	// rebootRequired says that the operating system of the host needs a reboot, as its agent reports it: the file
	// /run/reboot-required exists. It is absent if it needs none.
	// +optional
	RebootRequired RebootRequired `json:"rebootRequired,omitempty,omitzero"`

	// history are the last updates of the running host, in the order in which they began. After clusterctl move, those
	// that had ended are restored.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []HostUpdate `json:"history,omitempty"`

	// registeredTime is the requests.registrationRequestedTime of the last request after which the Node was seen or
	// created. Then the kubelet can start.
	// +optional
	RegisteredTime *metav1.MicroTime `json:"registeredTime,omitempty"`
}

// RebootRequired says that the operating system of a host needs a reboot.
type RebootRequired struct {
	// bootID is the boot in which the host needs it, as in status.nodeInfo.bootID of the Node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`

	// since is when the host began to need it: AtBoot in the first 10 minutes of this boot, Later after that. A host
	// that was rebooted for this, and needs it AtBoot again, is not rebooted for it again.
	// +required
	Since RebootRequiredSince `json:"since,omitempty"`

	// packages are the first packages because of which it needs it, as in /run/reboot-required.pkgs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Packages []string `json:"packages,omitempty"`
}

// RebootRequiredSince is when a host began to need a reboot.
//
// +kubebuilder:validation:Enum=AtBoot;Later
type RebootRequiredSince string

const (
	// RebootRequiredAtBoot is the first 10 minutes of the boot.
	RebootRequiredAtBoot RebootRequiredSince = "AtBoot"
	// RebootRequiredLater is a later time of the boot.
	RebootRequiredLater RebootRequiredSince = "Later"
)

// MaxRebootPackages is the maximum number of status.update.rebootRequired.packages.
const MaxRebootPackages = 16

// Limits of status.update.outdatedDisks.
const (
	// MaxOutdatedDisks is the maximum number of entries.
	MaxOutdatedDisks = 32
	// MaxOutdatedDisk is the maximum size of an entry in bytes.
	MaxOutdatedDisk = 253
)

// MaxUpdateHistory is the maximum number of entries of status.update.history.
const MaxUpdateHistory = 5

// MaxUpdateMessage is the maximum size of the message of an entry of status.update.history in bytes.
const MaxUpdateMessage = 1024

// HostUpdate is an update of a running host.
type HostUpdate struct {
	// configuration is the name of the rendered config that the host was told to change to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Configuration string `json:"configuration,omitempty"`

	// startTime is when the host was told to begin.
	// +required
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the update ended. It is absent until then.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// result is how it ended: Done, Degraded if it failed and what it had changed was undone, Unreconcilable if a
	// running host can't change to the configuration, Superseded if the host was told to run another one before,
	// UnitsFailing if it was Done, and units of the configuration failed after that, also if they run again.
	// +optional
	Result UpdateResult `json:"result,omitempty"`

	// effect is the strongest thing that the update did to the host, as its agent reports it: None if only files and
	// other entries changed, Reload or Restart of units or systemd, or a Reboot. It is absent until the update ends,
	// and if the agent began none.
	// +optional
	Effect UpdateEffect `json:"effect,omitempty"`

	// stages are how long the update was in each stage, in this order, in whole seconds. Those that took less than one
	// are left out, and so is the one that it is in.
	// +optional
	// +listType=map
	// +listMapKey=stage
	// +kubebuilder:validation:MaxItems=5
	Stages []UpdateStageDuration `json:"stages,omitempty"`

	// message is why the result is Degraded, Unreconcilable or UnitsFailing, what failed until it was Superseded, or
	// why the host rebooted fully although spec.updates.rebootMethod of its pool is another method.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// UpdateEffect is the strongest thing that an update does to a running host.
//
// +kubebuilder:validation:Enum=None;Reload;Restart;Reboot
type UpdateEffect string

// UpdateStageDuration is how long an update was in a stage.
type UpdateStageDuration struct {
	// stage is the stage.
	// +required
	Stage UpdateStage `json:"stage,omitempty"`

	// seconds is for how long the update was in it.
	// +required
	// +kubebuilder:validation:Minimum=1
	Seconds int32 `json:"seconds,omitempty"`
}

// UpdateResult is how an update of a running host ended.
//
// +kubebuilder:validation:Enum=Done;Degraded;Unreconcilable;Superseded;UnitsFailing
type UpdateResult string

const (
	// UpdateResultDone means that the host runs the configuration.
	UpdateResultDone UpdateResult = "Done"
	// UpdateResultDegraded means that the update failed, and what it had changed was undone.
	UpdateResultDegraded UpdateResult = "Degraded"
	// UpdateResultUnreconcilable means that a running host can't change to the configuration.
	UpdateResultUnreconcilable UpdateResult = "Unreconcilable"
	// UpdateResultSuperseded means that the host was told to run another configuration before the end.
	UpdateResultSuperseded UpdateResult = "Superseded"
	// UpdateResultUnitsFailing means that the host runs the configuration, and that units of it failed.
	UpdateResultUnitsFailing UpdateResult = "UnitsFailing"
)

// UnavailableReason is why a host is unavailable although its Node is Ready.
//
// +kubebuilder:validation:Enum=Cordoned;MachineChanging;KubeletFailing
type UnavailableReason string

const (
	// UnavailableCordoned means that a user or another program has cordoned the Node.
	UnavailableCordoned UnavailableReason = "Cordoned"
	// UnavailableMachineChanging means that Cluster API deletes or remediates the Machine, or updates it in place.
	UnavailableMachineChanging UnavailableReason = "MachineChanging"
	// UnavailableKubeletFailing means that the agent of the host reports that the kubelet does not run, or ends again
	// and again. Each start keeps the Node Ready for a while.
	UnavailableKubeletFailing UnavailableReason = "KubeletFailing"
)

// UpdateStage is a stage of the update of a running host.
//
// +kubebuilder:validation:Enum=Starting;Draining;Applying;Rebooting;Verifying
type UpdateStage string

// Stages in the order of an update. After the first one, they are states that the agent reports.
const (
	// UpdateStarting means that the host was told what to run, and its agent has not answered.
	UpdateStarting UpdateStage = "Starting"
	// UpdateDraining means that the Node is drained.
	UpdateDraining UpdateStage = "Draining"
	// UpdateApplying means that the host is being changed.
	UpdateApplying UpdateStage = "Applying"
	// UpdateRebooting means that the host was changed and reboots.
	UpdateRebooting UpdateStage = "Rebooting"
	// UpdateVerifying means that the host was changed, and its Node must become Ready and stay so.
	UpdateVerifying UpdateStage = "Verifying"
)
