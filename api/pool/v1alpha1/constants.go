package v1alpha1

// RoleWorker is the role of the pool that all other pools of a cluster inherit from.
const RoleWorker = "worker"

// Labels, taints and annotations on Nodes.
const (
	// NodeRoleLabelPrefix and a role make the label by which kubectl shows a Node's roles and, by default, a pool
	// selects its Nodes.
	NodeRoleLabelPrefix = "node-role.kubernetes.io/"

	// NodePoolLabel names the role of the pool that a Node is in. Poolboot keeps it; no decision rests on it, because a
	// kubelet may set it on its own Node.
	NodePoolLabel = "node.cluster.x-k8s.io/pool"

	// NodeUnassignedTaint (effect NoSchedule) stays on a Node until its kubelet is Ready and every label of its pool
	// stands.
	NodeUnassignedTaint = "pool.cluster.x-k8s.io/unassigned"

	// NodeMetal3UUIDLabel holds the UID of the BareMetalHost behind a Node. Cluster API's Metal3 provider finds the
	// Node of a Metal3Machine by it.
	NodeMetal3UUIDLabel = "metal3.io/uuid"

	// NodeConfigAnnotation names the PoolbootConfig that a Node was made for, as <namespace>/<name>. A Node without it
	// is not Poolboot's.
	NodeConfigAnnotation = "pool.cluster.x-k8s.io/poolbootconfig"

	// NodeCurrentConfigAnnotation names the rendered config that a Node booted with.
	NodeCurrentConfigAnnotation = "pool.cluster.x-k8s.io/current-config"

	// NodeDesiredConfigAnnotation names the rendered config that a Node ought to run: that of its pool.
	NodeDesiredConfigAnnotation = "pool.cluster.x-k8s.io/desired-config"

	// NodeAppliedTaintsAnnotation lists the taints of its pool that were put on a Node, as <key>=<value>:<effect> with
	// commas between them. Each is put on a Node once: one that is listed and not there was removed by a person.
	NodeAppliedTaintsAnnotation = "pool.cluster.x-k8s.io/applied-taints"
)

// Events about Nodes that Poolboot did not boot, in their own cluster, by reason.
const (
	// EventPoolConflict: the Node's labels are those of several custom pools.
	EventPoolConflict = "PoolConflict"
	// EventCustomPoolUnsupported: a control plane's labels ask for custom pools.
	EventCustomPoolUnsupported = "CustomPoolUnsupported"
)

// EventNodesUnguarded is the reason of an event about a Cluster that is too old for the policy that keeps kubelets from
// changing what says which pool their Node is in.
const EventNodesUnguarded = "NodesUnguarded"

// HostRetainedPoolAnnotation is on a BareMetalHost that keeps a pool for its next Machine, as
// <Cluster>/<role>/<identity of the Cluster>. Poolboot writes it for Machines with poolRetention: Host; without it the
// pool of the next Machine is decided again. It is metadata, so that it survives clusterctl move.
const HostRetainedPoolAnnotation = "pool.cluster.x-k8s.io/retained-pool"

// ClusterIdentityAnnotation is on every MachineConfigPool and tells its Cluster from every other, also from one that
// had the same name before: it is the UID that the Cluster had when its first pool was rendered. Poolboot writes it; it
// is metadata, so that, unlike the Cluster's UID, it survives clusterctl move.
const ClusterIdentityAnnotation = "pool.cluster.x-k8s.io/cluster-identity"

// Annotations by which a person asks for a BareMetalHost that no Machine uses to boot into a pool. Both are needed.
const (
	// HostPoolAnnotation is the role of the MachineConfigPool, which must name a hostTemplateRef.
	HostPoolAnnotation = "pool.cluster.x-k8s.io/pool-role"
	// HostClusterAnnotation is the name of the pool's Cluster, in the host's namespace.
	HostClusterAnnotation = "pool.cluster.x-k8s.io/cluster"
)

// HostAddressesAnnotation is on a BareMetalHost, or on the PoolbootConfig of a host without one, and names addresses,
// separated by commas, that the host has beside those that its inspection found.
const HostAddressesAnnotation = "pool.cluster.x-k8s.io/addresses"

// Events of a BareMetalHost that asks for a pool, beside the reasons for which a pool takes no hosts and those of the
// condition UserDataSet.
const (
	// EventHostRecordMade: the host's PoolbootConfig stands.
	EventHostRecordMade = "PoolbootConfigCreated"
	// EventHostRecordDeleted: it was deleted; the note says why.
	EventHostRecordDeleted = "PoolbootConfigDeleted"
	// EventHostPoolChanged: the host is to boot into another pool than before.
	EventHostPoolChanged = "PoolChanged"
	// EventHostPoolFixed: the annotation asks for another pool than that of the Node that stands.
	EventHostPoolFixed = "PoolFixed"
	// EventHostHasConsumer: the host is another one's to provision.
	EventHostHasConsumer = "HostHasConsumer"
	// EventHostRequestInvalid: one annotation is missing, or the host is one that can't boot by user data.
	EventHostRequestInvalid = "HostRequestInvalid"
	// EventHostNameTaken: the PoolbootConfig of the host's name is not the host's.
	EventHostNameTaken = "NameTaken"
)

// ForceDeleteAnnotation with the value "true" lets a MachineConfigPool be deleted although Machines are recorded in it
// or other pools inherit from it. Machines that have not booted then wait for a pool; Nodes keep their labels and are
// in the pool that those name now.
const ForceDeleteAnnotation = "pool.cluster.x-k8s.io/force-delete"

// RenderedForLabel is on every rendered MachineConfig and holds the name of the pool it was rendered for.
const RenderedForLabel = "pool.cluster.x-k8s.io/rendered-for"

// RenderedNamePrefix starts the names of rendered MachineConfigs and of no others.
const RenderedNamePrefix = "rendered-"

// Condition types of a MachineConfigPool, as OpenShift names them.
const (
	// UpdatedCondition is true when every Machine of the pool runs what the pool renders and its Node is Ready.
	UpdatedCondition = "Updated"
	// UpdatingCondition is true when the pool is not Updated and not paused.
	UpdatingCondition = "Updating"
	// RenderDegradedCondition is true when the pool's MachineConfigs can't be rendered, or when
	// spec.pausedConfiguration can't be handed out; the message names the MachineConfig and the place in it.
	RenderDegradedCondition = "RenderDegraded"
	// NodeDegradedCondition is true when a Machine of the pool can't go on without a person; the message names the
	// Machines and what each of them needs.
	NodeDegradedCondition = "NodeDegraded"
	// DegradedCondition is true when RenderDegraded or NodeDegraded is.
	DegradedCondition = "Degraded"
)

// Reasons of the conditions of a MachineConfigPool.
const (
	AllMachinesUpdatedReason         = "AllMachinesUpdated"
	MachinesPendingReason            = "MachinesPending"
	MachinesUnavailableReason        = "MachinesUnavailable"
	MachinesDegradedReason           = "MachinesDegraded"
	NothingRenderedReason            = "NothingRendered"
	RolloutPausedReason              = "RolloutPaused"
	RenderedReason                   = "Rendered"
	RenderFailedReason               = "RenderFailed"
	PausedConfigurationInvalidReason = "PausedConfigurationInvalid"
	ClusterNotFoundReason            = "ClusterNotFound"
	WorkerPoolMissingReason          = "WorkerPoolMissing"
	DuplicateRoleReason              = "DuplicateRole"
	AsExpectedReason                 = "AsExpected"
)

// ManagedByLabel is, with the value ManagedByPoolboot, on every object but Nodes and Secrets that Poolboot keeps in
// workload clusters.
const (
	ManagedByLabel    = "app.kubernetes.io/managed-by"
	ManagedByPoolboot = "poolboot"
)
