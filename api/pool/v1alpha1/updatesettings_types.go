package v1alpha1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// UpdateSettings is when and how the running hosts of a pool change to another configuration.
//
// +kubebuilder:validation:XValidation:rule="(has(self.minReadySeconds) ? self.minReadySeconds : 10) < (has(self.readyDeadlineSeconds) ? self.readyDeadlineSeconds : 1200)",message="it must be longer than minReadySeconds: set a later deadline, or fewer minReadySeconds",fieldPath=".readyDeadlineSeconds"
type UpdateSettings struct {
	// disruptionPolicy maps changes of the rendered config to what a running host does after them: nothing, reload or
	// restart a unit, drain, or reboot. A change that no policy covers reboots the host, as do changes of kernel
	// arguments, extensions, kernelType and osImageURL. A custom pool inherits the worker pool's policies;
	// its own policies for the same path or unit, or for SSH keys, replace them, and the defaults in docs/pools.md.
	// kubectl poolboot plan and diff show what a change needs.
	// +optional
	DisruptionPolicy DisruptionPolicy `json:"disruptionPolicy,omitempty,omitzero"`

	// failureDomainLabel is the key of a Node label, such as example.com/rack. Only hosts with the same value are
	// updated at a time. Hosts without the label are last. If it is not set, the values of
	// topology.kubernetes.io/zone only order the hosts.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="it must be a label key, such as example.com/rack"
	FailureDomainLabel string `json:"failureDomainLabel,omitempty"`

	// maintenanceWindow is when hosts can begin updates. A host that has begun one completes it. New hosts boot at any
	// time. If it is not set, hosts begin updates at any time.
	// +optional
	MaintenanceWindow MaintenanceWindow `json:"maintenanceWindow,omitempty,omitzero"`

	// exceptions are hosts whose updates follow another rule until a time, each with the reason. A custom pool does not
	// inherit them. kubectl poolboot rollout except sets them.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=32
	Exceptions []UpdateException `json:"exceptions,omitempty"`

	// gates are conditions of objects in the workload cluster, for example that storage is healthy. All must be
	// true when hosts begin updates. The condition UpdateGatesOpen of the pool names the first gate that is closed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Gates []UpdateGate `json:"gates,omitempty"`

	// approval is whether hosts begin updates to what the pool hands out (Automatic), or only once its annotation
	// poolboot.io/approved-configuration names that rendered config (Manual), as kubectl poolboot rollout approve
	// writes it. New hosts boot without an approval. Defaults to Automatic.
	// +optional
	Approval UpdateApproval `json:"approval,omitempty"`

	// canary are the hosts of the pool that are updated first. The others begin their updates only when all of these
	// have completed theirs. If it is not set, hosts do not wait for others, except by maxUnavailable.
	// +optional
	Canary CanarySettings `json:"canary,omitempty,omitzero"`

	// cluster is what applies to the updates of all pools of the cluster together. Only the worker pool can have it.
	// +optional
	Cluster ClusterUpdateSettings `json:"cluster,omitempty,omitzero"`

	// minReadySeconds is the time for which the Node of an updated host must be Ready before its update is complete.
	// Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`

	// readyDeadlineSeconds is the time within which an update must be complete after the host was changed, with its
	// reboot. After it, the host returns to its previous configuration by itself. It must be longer than
	// minReadySeconds. Defaults to 1200.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=14400
	ReadyDeadlineSeconds int32 `json:"readyDeadlineSeconds,omitempty"`

	// drainTimeoutSeconds is how long the drain of a Node for an update can take. After it, drainTimeoutPolicy applies.
	// The drain of a Machine that is deleted has another time, spec.deletion.nodeDrainTimeoutSeconds of the Machine.
	// Defaults to 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DrainTimeoutSeconds int32 `json:"drainTimeoutSeconds,omitempty"`

	// drainTimeoutPolicy is what happens when a Node is not drained for an update within drainTimeoutSeconds: Wait
	// reports the Pods that remain and continues to wait, Force updates the host with these Pods on
	// it. Defaults to Wait.
	// +optional
	DrainTimeoutPolicy DrainTimeoutPolicy `json:"drainTimeoutPolicy,omitempty"`

	// diskPolicy is what a running host does when storage.disks, storage.raid, storage.luks or storage.filesystems of
	// the configuration differ from what it was installed with. A running host never partitions, formats or erases a
	// disk. Refuse means that it cannot change to the configuration, and must be replaced. NewHostsOnly means that it
	// keeps its disks, and the mount units and lines of /etc/fstab and /etc/crypttab about what differs, and gets
	// everything else of the configuration; status.update.outdatedDisks of its PoolbootConfig has what it does not get.
	// A custom pool inherits the worker pool's value. Defaults to Refuse.
	// +optional
	DiskPolicy DiskPolicy `json:"diskPolicy,omitempty"`

	// driftPolicy is what a host does when it differs from its configuration: Report reports the paths that differ,
	// Repair also corrects them. Defaults to Report.
	// +optional
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

	// rebootMethod is how a host reboots for an update: Full through its firmware and boot loader; Kexec starts the
	// kernel that would boot next, without the firmware; SoftReboot restarts everything but the kernel, as systemctl
	// soft-reboot does. If the change or the host does not allow it, and when an update is undone, the host reboots
	// fully. Defaults to Full.
	// +optional
	RebootMethod RebootMethod `json:"rebootMethod,omitempty"`

	// restart restarts the hosts of the pool without a change, under all limits. A host restarts when its id is another
	// one than before. A host that boots for the first time, or comes from another pool, does not restart. kubectl
	// poolboot rollout restart sets it.
	// +optional
	Restart RestartRequest `json:"restart,omitempty,omitzero"`

	// rebootRequiredPolicy is what happens if the operating system of a host needs a reboot, which Debian and Ubuntu
	// say with the file /run/reboot-required. Report shows it in status.update.rebootRequired of the PoolbootConfig.
	// Reboot also reboots the host, as an update under all limits, at most once a day. If the host needs it again at
	// the next boot, it is only reported. Defaults to Report.
	// +optional
	RebootRequiredPolicy RebootRequiredPolicy `json:"rebootRequiredPolicy,omitempty"`

	// staging is how hosts download what their next update needs, while they wait for it.
	// +optional
	Staging StagingSettings `json:"staging,omitempty,omitzero"`
}

// RestartRequest is a restart of hosts without a change.
//
// +kubebuilder:validation:XValidation:rule="self.id != oldSelf.id || self.kind == oldSelf.kind",message="hosts that have restarted for this id do not restart again: set another id",fieldPath=".kind"
type RestartRequest struct {
	// id identifies the restart, such as the time of the request. Each restart needs another one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._:+-]*$`
	ID string `json:"id,omitempty"`

	// kind is what restarts: Reboot drains each Node and reboots its host by rebootMethod, Kubelet restarts the kubelet
	// without a drain.
	// +required
	Kind RestartKind `json:"kind,omitempty"`
}

// RestartKind is what restarts.
//
// +kubebuilder:validation:Enum=Reboot;Kubelet
type RestartKind string

const (
	// RestartReboot drains the Node and reboots the host.
	RestartReboot RestartKind = "Reboot"
	// RestartKubelet restarts the kubelet.
	RestartKubelet RestartKind = "Kubelet"
)

// RebootRequiredPolicy is what happens if the operating system of a host needs a reboot.
//
// +kubebuilder:validation:Enum=Report;Reboot
type RebootRequiredPolicy string

const (
	// RebootRequiredReport only reports it.
	RebootRequiredReport RebootRequiredPolicy = "Report"
	// RebootRequiredReboot also reboots the host.
	RebootRequiredReboot RebootRequiredPolicy = "Reboot"
)

// IsRequested reports whether a restart was requested.
func (r RestartRequest) IsRequested() bool { return r.ID != "" }

// StagingSettings is how hosts download what their next update needs. A host is cordoned only after it has everything.
//
// +kubebuilder:validation:MinProperties=1
type StagingSettings struct {
	// maxHosts is how many hosts of the pool download at a time while they wait for their updates. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	MaxHosts int32 `json:"maxHosts,omitempty"`

	// bandwidthPerHost is how many bytes the agent of a host downloads per second at most, such as 20Mi. It does not
	// apply to images, which other programs of the host download. If it is not set, there is no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('128Ki')) >= 0",message="it must be at least 128Ki, because a host waits for its files at most for some minutes"
	BandwidthPerHost *resource.Quantity `json:"bandwidthPerHost,omitempty"`

	// prefetch are container images that the container runtime of a host has before the host is cordoned, such as those
	// of the DaemonSets that start after its reboot. An image with a digest cannot be exchanged on the way. The
	// kubelet removes images that no Pod uses when the host needs the space.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.all(i, i.matches(r'^[a-zA-Z0-9][a-zA-Z0-9-]*((\.[a-zA-Z0-9-]+)+(:[0-9]+)?|:[0-9]+)/[a-z0-9][a-zA-Z0-9._/-]*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$'))`,message="each image must have a registry with a dot or a port, such as registry.example/team/app:v1 or localhost:5000/app"
	Prefetch []string `json:"prefetch,omitempty"`
}

// DefaultStagingHosts is the number of hosts that stage at a time if a pool has no staging.maxHosts.
const DefaultStagingHosts = 10

// DrainTimeoutPolicy is what happens when a Node is not drained in time.
//
// +kubebuilder:validation:Enum=Wait;Force
type DrainTimeoutPolicy string

const (
	// DrainTimeoutWait reports the Pods that remain and continues to wait.
	DrainTimeoutWait DrainTimeoutPolicy = "Wait"
	// DrainTimeoutForce updates the host with the Pods that remain on it.
	DrainTimeoutForce DrainTimeoutPolicy = "Force"
)

// DiskPolicy is what a running host does when its disks differ from those of the configuration.
//
// +kubebuilder:validation:Enum=Refuse;NewHostsOnly
type DiskPolicy string

const (
	// DiskRefuse means that the host cannot change to the configuration.
	DiskRefuse DiskPolicy = "Refuse"
	// DiskNewHostsOnly means that the host keeps its disks, and gets everything else of the configuration.
	DiskNewHostsOnly DiskPolicy = "NewHostsOnly"
)

// DriftPolicy is what a host does when it differs from its configuration.
//
// +kubebuilder:validation:Enum=Report;Repair
type DriftPolicy string

const (
	// DriftReport reports the paths that differ.
	DriftReport DriftPolicy = "Report"
	// DriftRepair also corrects them.
	DriftRepair DriftPolicy = "Repair"
)

// RebootMethod is how a host reboots for an update.
//
// +kubebuilder:validation:Enum=Full;Kexec;SoftReboot
type RebootMethod string

const (
	// RebootFull reboots through the firmware and the boot loader.
	RebootFull RebootMethod = "Full"
	// RebootKexec starts the kernel that would boot next, without the firmware and the boot loader.
	RebootKexec RebootMethod = "Kexec"
	// RebootSoft restarts everything but the kernel.
	RebootSoft RebootMethod = "SoftReboot"
)

// Defaults of the times in a pool's spec. The CRDs have no defaults: an object is stored as it was written.
const (
	DefaultMinReadySeconds      = 10
	DefaultReadyDeadlineSeconds = 1200
	DefaultDrainTimeoutSeconds  = 600
)

// MinReady returns the seconds for which the Node of an updated host must be Ready.
func (s *UpdateSettings) MinReady() int32 {
	if s.MinReadySeconds == nil {
		return DefaultMinReadySeconds
	}
	return *s.MinReadySeconds
}

// ReadyDeadline returns the seconds within which an update must be complete.
func (s *UpdateSettings) ReadyDeadline() int32 {
	return cmp.Or(s.ReadyDeadlineSeconds, DefaultReadyDeadlineSeconds)
}

// DrainTimeout returns the seconds after which drainTimeoutPolicy applies to a drain.
func (s *UpdateSettings) DrainTimeout() int32 {
	return cmp.Or(s.DrainTimeoutSeconds, DefaultDrainTimeoutSeconds)
}

// StagingHosts returns how many hosts stage their updates at a time.
func (s *UpdateSettings) StagingHosts() int {
	return int(cmp.Or(s.Staging.MaxHosts, DefaultStagingHosts))
}

// RepairsDrift reports whether hosts correct differences from their configuration.
func (s *UpdateSettings) RepairsDrift() bool { return s.DriftPolicy == DriftRepair }

// ForcesDrain reports whether hosts are updated although their Nodes are not drained in time.
func (s *UpdateSettings) ForcesDrain() bool { return s.DrainTimeoutPolicy == DrainTimeoutForce }

// RebootsIfRequired reports whether a host is rebooted if its operating system needs that.
func (s *UpdateSettings) RebootsIfRequired() bool {
	return s.RebootRequiredPolicy == RebootRequiredReboot
}
