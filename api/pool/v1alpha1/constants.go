package v1alpha1

// RoleWorker is the role of the pool that all custom pools of a cluster inherit from.
const RoleWorker = "worker"

// RoleControlPlane is the role of the pool of the control plane's Nodes. It inherits from no pool.
const RoleControlPlane = "control-plane"

// Labels, taints and annotations on Nodes.
const (
	// NodeRoleLabelPrefix is the prefix of role labels; the role follows. kubectl shows the roles of a Node from them,
	// and by default a pool selects its Nodes by them.
	NodeRoleLabelPrefix = "node-role.kubernetes.io/"

	// NodePoolLabel is the role of the pool that a Node is in. Poolboot maintains it. No decision depends on it,
	// because a kubelet can set it on its own Node.
	NodePoolLabel = "poolboot.io/pool"

	// NodeUnassignedTaint (effect NoSchedule) stays on a Node until its kubelet is Ready and it has every label of its
	// pool.
	NodeUnassignedTaint = "poolboot.io/unassigned"

	// NodeMetal3UUIDLabel holds the UID of the BareMetalHost behind a Node. Cluster API's Metal3 provider finds the
	// Node of a Metal3Machine by it.
	NodeMetal3UUIDLabel = "metal3.io/uuid"

	// NodeConfigAnnotation names the PoolbootConfig for which a Node was pre-registered, as <namespace>/<name>.
	// Poolboot does not manage Nodes without it.
	NodeConfigAnnotation = "poolboot.io/poolbootconfig"

	// NodeCurrentConfigAnnotation names the rendered config that the host of a Node runs.
	NodeCurrentConfigAnnotation = "poolboot.io/current-config"

	// NodeAppliedTaintsAnnotation lists the taints of its pool that were added to a Node, as <key>=<value>:<effect>,
	// separated by commas. Each is added once: a user removed a taint that is listed but not on the Node.
	NodeAppliedTaintsAnnotation = "poolboot.io/applied-taints"

	// NodeAdoptedLabelsAnnotation lists the labels of its pool that an adopted Node did not have, as <key>=<value>,
	// separated by commas.
	NodeAdoptedLabelsAnnotation = "poolboot.io/adopted-labels"
)

// Reasons of events about Nodes that Poolboot did not boot, in their own cluster.
const (
	// Warning: Several custom pools match the labels of the Node. Remove the labels of all but one.
	EventPoolConflict = "PoolConflict"
	// Warning: Custom pools match the labels of a control-plane Node. Remove their labels.
	EventCustomPoolUnsupported = "CustomPoolUnsupported"
)

// Reasons of events about a Machine of another bootstrap provider whose Node a pool adopts (spec.adoption). That its
// PoolbootConfig was created is EventPoolbootConfigCreated.
const (
	// Warning: The Node is not adopted. The message says why, and what to do.
	EventNodeNotAdopted = "NodeNotAdopted"
)

// Reasons of events about a pool whose running hosts change to another configuration. RolloutStoppedReason is also the
// reason of an event.
const (
	EventRolloutStarted   = "RolloutStarted"
	EventRolloutCompleted = "RolloutCompleted"
	// Warning: No host begins an update. Correct what the message names.
	EventRolloutFailing = "RolloutFailing"
)

// Reasons of events about a Cluster.
const (
	// Warning: The Cluster is too old for the policy that keeps kubelets from changing their pool. Upgrade it.
	EventNodesUnguarded = "NodesUnguarded"
)

// HostRetainedPoolAnnotation is on a BareMetalHost and records the pool for its next Machine, as
// <Cluster>/<role>/<identity of the Cluster>. Poolboot writes it for Machines with poolRetention: Host. Without it the
// pool of the next Machine is decided again. It is metadata because clusterctl move drops status.
const HostRetainedPoolAnnotation = "poolboot.io/retained-pool"

// ClusterIdentityAnnotation is on every MachineConfigPool and distinguishes its Cluster from every other one, also from
// an earlier Cluster with the same name. It is the UID that the Cluster had when its first pool was rendered. Poolboot
// writes it. Unlike the Cluster's UID, it survives clusterctl move.
const ClusterIdentityAnnotation = "poolboot.io/cluster-identity"

// PausedConfigurationAnnotation is on a paused MachineConfigPool and names the rendered config of this pool that new
// Machines boot with. Poolboot writes it unless a user did, and removes it when the pool is no longer paused.
const PausedConfigurationAnnotation = "poolboot.io/paused-configuration"

// HandedOutAnnotation is on a MachineConfigPool and repeats which rendered configs in status.history it handed out, and
// since when, because clusterctl move drops the status. Poolboot writes it, and reads it only while that history is
// empty. It is a record for people and no proof: everyone who can write pools can change it.
const HandedOutAnnotation = "poolboot.io/handed-out"

// RenderedFromAnnotation is on a rendered config and lists what it was rendered from: the MachineConfigs in the order
// of the merge, and the pools with settings in spec.kubelet, each with the beginning of a hash of its content. Poolboot
// writes it when it creates the rendered config. It is for messages: nothing else depends on it. It is absent if the
// list is too long.
const RenderedFromAnnotation = "poolboot.io/rendered-from"

// ApprovedConfigurationAnnotation is on a MachineConfigPool with spec.updates.approval Manual and names the rendered
// config of this pool to which hosts can begin updates. A user writes it, as by kubectl poolboot rollout approve.
const ApprovedConfigurationAnnotation = "poolboot.io/approved-configuration"

// AdmittedAnnotation is on an Enrollment and lists the names that it has admitted, in the order of their admission,
// separated by commas. Each name is one use, even if its host sends more requests or is reinstalled. Poolboot writes
// it; changes by others are refused.
const AdmittedAnnotation = "poolboot.io/admitted"

// Annotations by which a user requests that a BareMetalHost without a Machine boots into a pool. Both are required.
const (
	// HostPoolAnnotation is the role of the MachineConfigPool, which must have spec.hosts.templateRef.
	HostPoolAnnotation = "poolboot.io/pool-role"
	// HostClusterAnnotation is the name of the pool's Cluster, in the host's namespace.
	HostClusterAnnotation = "poolboot.io/cluster"
)

// HostAddressesAnnotation is on a BareMetalHost, or on the PoolbootConfig of a host without a BareMetalHost. It lists
// addresses, separated by commas, that the host has in addition to those that its inspection found.
const HostAddressesAnnotation = "poolboot.io/addresses"

// Reasons of events about a BareMetalHost that requests a pool. Other events have the reason why the pool takes no
// hosts, or a reason of the condition UserDataSet.
const (
	// EventPoolbootConfigCreated reports that the host's PoolbootConfig was created.
	EventPoolbootConfigCreated = "PoolbootConfigCreated"
	// EventPoolbootConfigDeleted reports that the host's PoolbootConfig was deleted, and why.
	EventPoolbootConfigDeleted = "PoolbootConfigDeleted"
	// EventPoolChanged reports that the host boots into another pool than requested before.
	EventPoolChanged = "PoolChanged"
	// Warning: The annotation requests another pool than that of the existing Node. Change the labels of the Node.
	EventPoolFixed = "PoolFixed"
	// Warning: Another object uses the host. Remove the annotations, or that object.
	EventHostHasConsumer = "HostHasConsumer"
	// Warning: An annotation is missing, or the host cannot boot by user data. The message says what to do.
	EventHostRequestInvalid = "HostRequestInvalid"
	// Warning: Another PoolbootConfig has the name of the host. Delete it.
	EventNameTaken = "NameTaken"
)

// ForceDeleteAnnotation with the value "true" allows the deletion of a MachineConfigPool in which Machines are recorded
// or from which other pools inherit. Machines that have not booted then wait for a pool. Nodes keep their labels and
// are in the pool that these labels select then.
const ForceDeleteAnnotation = "poolboot.io/force-delete"

// RenderedForLabel is on every rendered config and is the name of the pool that it was rendered for.
const RenderedForLabel = "poolboot.io/rendered-for"

// RenderedNamePrefix is the prefix of the names of rendered configs. Other MachineConfigs must not have it.
const RenderedNamePrefix = "rendered-"

// ReadyCondition is the condition of a MachineConfigPool or a MachineConfig by which tools such as Flux, Argo CD and
// kubectl wait know that it is as it should be. A pool is Ready when it is Updated and not Degraded; otherwise the
// reason and the message are those of what is wrong. A MachineConfig is Ready when it is valid, and no pool
// that renders it names it as a cause why that fails.
const ReadyCondition = "Ready"

// StalledCondition is a condition of all kinds, also of a PoolbootConfig. It is True while a person must act, with the
// reason and the message of the condition that says so, and absent otherwise. Programs with the library kstatus, such
// as Flux, count an object as failed while it is True.
const StalledCondition = "Stalled"

// Condition types of a MachineConfigPool, as OpenShift names them.
const (
	// UpdatedCondition is true when every host of the pool runs what the pool renders and its Node is Ready.
	UpdatedCondition = "Updated"
	// UpdatingCondition is true when the pool is not Updated and not paused, and not all that waits is skipped.
	UpdatingCondition = "Updating"
	// RenderDegradedCondition is true when the pool's MachineConfigs can't be rendered, or when the annotation
	// poolboot.io/paused-configuration or spec.configurationName names no rendered config of the pool. The message
	// names the MachineConfig and the field in it.
	RenderDegradedCondition = "RenderDegraded"
	// NodeDegradedCondition is true when a host of the pool requires a user's action. The message names the hosts and
	// the action for each.
	NodeDegradedCondition = "NodeDegraded"
	// DegradedCondition is true when RenderDegraded or NodeDegraded is.
	DegradedCondition = "Degraded"
	// UpdateGatesOpenCondition is false while a gate of spec.updates.gates, the control plane, other pools of the
	// cluster or canaries prevent hosts from beginning their updates. The message says which. It is true if the gates
	// were open when hosts began updates last.
	UpdateGatesOpenCondition = "UpdateGatesOpen"
	// PinnedCondition is true while the pool hands out what spec.configurationName names. The message names the
	// MachineConfigs because of which the pool renders something else. It does not exist without the field.
	PinnedCondition = "Pinned"
)

// Reasons of the conditions of a MachineConfigPool.
const (
	// All hosts run what the pool renders, and their Nodes are Ready.
	AllHostsUpdatedReason = "AllHostsUpdated"
	// Hosts have not joined yet, or wait for their update, or fail to follow the pool and retry it, or have no agent
	// and must be renewed: docs/pools.md#renewing-machines.
	HostsPendingReason = "HostsPending"
	// Running hosts are being updated. The message names them.
	HostsUpdatingReason = "HostsUpdating"
	// The update of running hosts failed, is not possible, or has no answer of the agent, or their units fail after it,
	// and no other host is being updated or next: docs/updates.md#when-an-update-stops.
	RolloutStoppedReason = "RolloutStopped"
	// Running hosts wait for their update, and none is updated, because the hosts that the message names are
	// unavailable. Correct these, or replace their Machines.
	RolloutBlockedReason = "RolloutBlocked"
	// Hosts have no Ready Node in the pool.
	HostsUnavailableReason = "HostsUnavailable"
	// Hosts need you to act.
	HostsDegradedReason = "HostsDegraded"
	// Nothing is rendered yet. See RenderDegraded.
	NothingRenderedReason = "NothingRendered"
	// The pool is paused by spec.paused, and a change waits. To roll it out, run kubectl poolboot rollout resume.
	RolloutPausedReason = "RolloutPaused"
	// Hosts wait for their update, and what the pool hands out is not approved. Look at it, and run kubectl poolboot
	// rollout approve: docs/updates.md#approve-updates.
	ApprovalPendingReason = "ApprovalPending"
	// All hosts run what the pool renders, and their Nodes are Ready, but for those that spec.updates.exceptions skips
	// until a time. The message names these with the reasons: docs/updates.md#exceptions-for-one-host.
	HostsSkippedReason = "HostsSkipped"
	// The pool is rendered.
	RenderedReason = "Rendered"
	// The MachineConfigs cannot be rendered. Correct the one that the message names.
	RenderFailedReason = "RenderFailed"
	// The annotation poolboot.io/paused-configuration names no rendered config of the pool. Name one, or set
	// spec.paused to false: docs/pools.md#paused-pools.
	PausedConfigurationInvalidReason = "PausedConfigurationInvalid"
	// spec.configurationName names no rendered config of the pool that exists. Name one, or leave it out:
	// docs/updates.md#return-to-an-earlier-configuration.
	PinnedConfigurationInvalidReason = "PinnedConfigurationInvalid"
	// The Cluster of the pool does not exist. Create it, or correct clusterName.
	ClusterNotFoundReason = "ClusterNotFound"
	// The Cluster has no pool worker. Create it.
	WorkerPoolMissingReason = "WorkerPoolMissing"
	// Several pools of the Cluster have this role. Delete all but one.
	DuplicateRoleReason = "DuplicateRole"
	// Nothing is wrong.
	AsExpectedReason = "AsExpected"
)

// Reasons of the condition Pinned of a MachineConfigPool. It is False with RolloutPausedReason or
// PinnedConfigurationInvalidReason while the pool does not hand out what spec.configurationName names.
const (
	// The pool renders something else than spec.configurationName. Change or revert the MachineConfigs that the message
	// names, and run kubectl poolboot rollout resume: docs/updates.md#return-to-an-earlier-configuration.
	ConfigurationDiffersReason = "ConfigurationDiffers"
	// The pool renders what spec.configurationName names. Run kubectl poolboot rollout resume.
	ConfigurationSameReason = "ConfigurationSame"
)

// Reasons of the condition Ready of a MachineConfig.
const (
	// The MachineConfig is valid.
	MachineConfigValidReason = "Valid"
	// A pool cannot be rendered because of the MachineConfig, alone or together with others. Correct the field that the
	// message names.
	MachineConfigInvalidReason = "Invalid"
)

// Reasons of the condition UpdateGatesOpen. All but the first are also those of Updated while all hosts that wait for
// their update wait for a gate, and GateUnreadableReason is that of an event.
const (
	// All gates were open when hosts began updates last.
	GatesOpenReason = "GatesOpen"
	// The expression of a gate is false, so no host begins an update. The message names the gate.
	GateClosedReason = "GateClosed"
	// The control plane can't be without one more host now, or Cluster API is changing it. It is looked at again every
	// ten seconds: docs/adopt.md#the-control-plane.
	ControlPlaneNotReadyReason = "ControlPlaneNotReady"
	// The object of a gate can't be read, or the expression fails, so no host begins an update:
	// docs/updates.md#update-gates.
	GateUnreadableReason = "GateUnreadable"
	// A pool of an earlier step of spec.updates.cluster.order is not ready, is not ready for long enough, or does not
	// exist. The message names it: docs/updates.md#all-pools-of-a-cluster.
	EarlierPoolsPendingReason = "EarlierPoolsPending"
	// As many hosts of all pools are away as spec.updates.cluster of the worker pool allows, or hosts of another
	// failure domain are. The message names some: docs/updates.md#all-pools-of-a-cluster.
	ClusterLimitReason = "ClusterLimit"
	// The hosts of spec.updates.canary have not completed their updates, or not for long enough, so no other host
	// begins. The message names them: docs/updates.md#canaries.
	CanaryPendingReason = "CanaryPending"
)

// UpdateGatesUser is the user of a workload cluster that reads the objects of update gates. The manager impersonates
// it. The owner of the workload cluster grants it the rights to read them.
const UpdateGatesUser = "poolboot:update-gates"

// ManagedByLabel, with the value ManagedByPoolboot, is on every object that Poolboot maintains in workload clusters,
// except Nodes and Secrets.
const (
	ManagedByLabel    = "app.kubernetes.io/managed-by"
	ManagedByPoolboot = "poolboot"
)
