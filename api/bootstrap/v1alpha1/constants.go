package v1alpha1

// Finalizer is on every PoolbootConfig whose deletion requires a cleanup: of the machine's overlay, its join credential
// and a Node that no kubelet adopted.
const Finalizer = "bootstrap.cluster.x-k8s.io/poolbootconfig"

// AdoptedPointerID is the pointer ID of adopted hosts. They are identified by the certificates of their kubelets.
const AdoptedPointerID = "adopted"

// Annotations of a PoolbootConfig by which the config server identifies a host. They are metadata because clusterctl
// move drops status.
const (
	// PointerIDAnnotation is the last part of the URL in the host's pointer: the UID that the Machine had when its
	// data Secret was created. Without a Machine it is the UID of the PoolbootConfig. For a host that enrolled, it
	// consists of the Enrollment's name and the host's name, and for an adopted host it is AdoptedPointerID.
	PointerIDAnnotation = "poolboot.io/pointer-id"

	// EnrolledFromAnnotation is the IP address of the requests of a host that an Enrollment admitted. A request for the
	// same name from another address counts as another host, until this host sent no request for 15 minutes. Then the
	// manager writes the new address.
	EnrolledFromAnnotation = "poolboot.io/enrolled-from"

	// TokenHashAnnotation is the SHA-256 of the host's bearer token, bound to the PoolbootConfig's namespace, name and
	// UID, in hex. It is removed when the token is revoked.
	TokenHashAnnotation = "poolboot.io/token-sha256"

	// TokenUIDAnnotation is the UID that the hash is bound to: that of the PoolbootConfig or, for a host that enrolled,
	// that of the Secret with the enrollment token. If it is the UID of an earlier object, for example after clusterctl
	// move, no token is accepted until the manager has bound the hash to the new UID.
	TokenUIDAnnotation = "poolboot.io/token-uid"

	// TokenStateAnnotation is the TokenState of a token that the config server no longer accepts. It is absent while
	// the token can be used.
	TokenStateAnnotation = "poolboot.io/token-state"

	// RotateTokenAnnotation requests a new token, with any value. Poolboot removes it when the token was rotated.
	RotateTokenAnnotation = "poolboot.io/rotate-token"

	// TokenRotatedAnnotation is the time at which the token was last rotated (RFC 3339).
	TokenRotatedAnnotation = "poolboot.io/token-rotated"
)

// TokenState is why a host's token is no longer accepted. A token with an unknown state is not accepted either.
type TokenState string

const (
	// TokenStateExpired is the state of a token whose host did not join in time. A rotation replaces the token.
	TokenStateExpired TokenState = "Expired"

	// TokenStateRevoked is the state of a token whose host has joined: its Node was Ready in its pool.
	TokenStateRevoked TokenState = "Revoked"
)

// CredentialIDAnnotation is on inline data Secrets and overlay Secrets and holds the ID of the join credential in them.
const CredentialIDAnnotation = "poolboot.io/credential-id"

// Keys of data Secrets and the value of the second, from the contract of Cluster API and from what Cluster API Provider
// Metal3 reads.
const (
	// DataSecretValueKey is the key of the bootstrap data.
	DataSecretValueKey = "value"
	// DataSecretFormatKey is the key of the format of the bootstrap data.
	DataSecretFormatKey = "format"
	// DataSecretFormatIgnition is the format of Poolboot's bootstrap data.
	DataSecretFormatIgnition = "ignition"
)

// DataSecretPoolAnnotation is on inline data Secrets and holds the role of the pool whose configuration is in them. It
// is metadata of the Secret itself, so that a crash or clusterctl move can't separate it from the content.
const DataSecretPoolAnnotation = "poolboot.io/data-for-pool"

// Overlay Secrets hold the configuration of one machine. They are created in the config server's namespace when the
// host requests its configuration.
const (
	// OverlayNamePrefix is the prefix of the name of an overlay Secret; the UID of the PoolbootConfig follows.
	OverlayNamePrefix = "overlay-"

	// OverlayLabel is on every overlay Secret; its value is the UID of the PoolbootConfig.
	OverlayLabel = "poolboot.io/overlay-for"

	// OverlayExpiresAnnotation is the time at which the join credential in the overlay expires (RFC 3339).
	OverlayExpiresAnnotation = "poolboot.io/expires"

	// OverlayConfigurationAnnotation names the rendered config that the host boots with.
	OverlayConfigurationAnnotation = "poolboot.io/configuration"

	// OverlayAgentAnnotation is the SHA-512 in hex of the agent's program that the overlay names. It is absent if the
	// overlay names none. A config server that does not have this program does not serve the overlay.
	OverlayAgentAnnotation = "poolboot.io/agent-sha512"

	// OverlayKey is the key of the overlay in the Secret: Ignition, encoded as in the answer to the host (a data URL of
	// a gzip file).
	OverlayKey = "packed"
)

// Assignment Secrets hold what a running host should run. They are in the config server's namespace.
const (
	// AssignmentNamePrefix is the prefix of the name of an assignment Secret; the UID of the PoolbootConfig follows.
	AssignmentNamePrefix = "assignment-"

	// AssignmentLabel is on every assignment Secret; its value is the UID of the PoolbootConfig.
	AssignmentLabel = "poolboot.io/assignment-for"

	// AssignmentKey is the key of the assignment, and AssignmentClientCAKey that of the PEM bundle that verifies the
	// client certificates of the Cluster's kubelets.
	AssignmentKey         = "assignment.json"
	AssignmentClientCAKey = "client-ca.crt"
)

// ForceUpdateAnnotation is on a PoolbootConfig. When its value changes, the host applies its configuration again.
const ForceUpdateAnnotation = "poolboot.io/force-update"

// UpdateHistoryAnnotation is on a PoolbootConfig and repeats the updates in status.update.history that have ended, as
// JSON, because clusterctl move drops the status. Poolboot writes it, and reads it only while that history is empty. It
// is a record for people and no proof: everyone who can write PoolbootConfigs can change it.
const UpdateHistoryAnnotation = "poolboot.io/update-history"

// RebootFromAnnotation is on a PoolbootConfig: the ID of the boot that the host is to leave, or left last, because its
// operating system needed that, a space, and when the manager decided it (RFC 3339).
const RebootFromAnnotation = "poolboot.io/reboot-from"

const (
	// FirmwareRebootAnnotation is on a BareMetalHost and names the update for which the manager requested last that
	// Metal3 reboots the host, because that applies firmware settings or updates: the id of its slot and its revision,
	// separated by a slash.
	FirmwareRebootAnnotation = "poolboot.io/firmware-reboot"
	// FirmwareRebootRequest is the value of the annotation reboot.metal3.io by which the manager requests that. Metal3
	// reads only the mode: the operating system shuts down before the power is off. The rest marks it as a request of
	// the manager.
	FirmwareRebootRequest = `{"mode":"soft","requestedBy":"poolboot"}`
)

// Condition types of a PoolbootConfig.
const (
	// DataSecretAvailableCondition is true once the data Secret exists. It is false again if the Secret is lost
	// before the host has joined.
	DataSecretAvailableCondition = "DataSecretAvailable"
	// PoolDecidedCondition is true when the pool of the Machine is decided.
	PoolDecidedCondition = "PoolDecided"
	// BootPreparedCondition is true once the Node, the join credential and the overlay were complete for a host that
	// requested its configuration. It is unknown before the host's first request, and false when they can't be created.
	BootPreparedCondition = "BootPrepared"
	// UserDataSetCondition is true when the user data of the BareMetalHost that spec.host names is the data Secret.
	// Other PoolbootConfigs don't have it.
	UserDataSetCondition = "UserDataSet"
	// TokenUsableCondition is false when the host's token expired before the host joined, and true again once the token
	// was rotated. PoolbootConfigs whose token never expired don't have it.
	TokenUsableCondition = "TokenUsable"
	// IgnitionSucceededCondition is false when the host reports that Ignition failed at its first boot, unknown when
	// the host has requested its configuration again, and true when its kubelet has joined. PoolbootConfigs whose host
	// never reported a failure don't have it.
	IgnitionSucceededCondition = "IgnitionSucceeded"
	// VersionsFitCondition is false while the host does not join because its kubelet or kubeadm does not fit the
	// version of the API server. Other PoolbootConfigs don't have it.
	VersionsFitCondition = "VersionsFit"
	// NodeInPoolCondition is true when the Machine's Node is Ready and in the recorded pool.
	NodeInPoolCondition = "NodeInPool"
	// UpdatedCondition is true when the running host runs what it should run, and unknown if it has no agent.
	// PoolbootConfigs whose host has not joined don't have it.
	UpdatedCondition = "Updated"
)

// Reasons of the conditions of a PoolbootConfig.
const (
	// No Machine owns the PoolbootConfig yet.
	WaitingForOwnerReason = "WaitingForOwner"
	// The Cluster does not exist yet.
	WaitingForClusterReason = "WaitingForCluster"
	// The infrastructure of the Cluster is not provisioned yet.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"
	// The control plane is not initialized yet.
	WaitingForControlPlaneReason = "WaitingForControlPlane"
	// The Machine is a control-plane Machine. Use the bootstrap provider of the control plane, and adopt its Node:
	// docs/adopt.md#the-control-plane.
	ControlPlaneNotSupportedReason = "ControlPlaneNotSupported"
	// The owner is a MachinePool. Use a MachineDeployment.
	MachinePoolNotSupportedReason = "MachinePoolNotSupported"
	// The data Secret exists.
	DataSecretCreatedReason = "DataSecretCreated"
	// The data Secret cannot be created, was lost or was changed. Restore it, or replace the host.
	DataSecretFailedReason = "DataSecretFailed"
	// spec.bootstrap.dataSecretName of the Machine names a Secret that Poolboot did not create, and the host boots with
	// it. Leave the field out, or use another bootstrap provider.
	DataSecretPresetReason = "DataSecretPreset"
	// Another object owns the Secret with this name. Delete the Secret.
	DataSecretNotOwnedReason = "DataSecretNotOwned"
	// The garbage collector has not deleted the Secret of an earlier PoolbootConfig with this name yet.
	WaitingForSecretDeletionReason = "WaitingForSecretDeletion"
	// The host enrolled with a token and needs no data Secret.
	HostEnrolledReason = "HostEnrolled"
	// The host was adopted: Poolboot did not boot it, and it needs no data Secret.
	HostAdoptedReason = "HostAdopted"
	// The token expired before the host joined. Rotate it: docs/install.md#security.
	TokenExpiredReason = "TokenExpired"
	// The token is valid again.
	TokenLiveReason = "TokenLive"
	// The BareMetalHost has its user data.
	UserDataSetReason = "UserDataSet"
	// The BareMetalHost has other user data, and its Secret exists. The message says how to remove it.
	UserDataTakenReason = "UserDataTaken"
	// The BareMetalHost was provisioned before its annotations requested a pool. Deprovision it.
	HostProvisionedBeforeReason = "HostProvisionedBefore"
	// No pool with that role exists, or no pool selects a role label of the Machine. Create the pool, correct the
	// labels, or set spec.poolRole.
	PoolNotFoundReason = "PoolNotFound"
	// The labels match several pools: correct the labels. Or several pools have one role: delete all but one.
	PoolConflictReason = "PoolConflict"
	// Poolboot cannot derive the labels of a Node from the selector of the pool. Correct the selector.
	PoolNotRegistrableReason = "PoolNotRegistrable"
	// The pool has rendered nothing yet. See the conditions of the pool.
	PoolNotRenderedReason = "PoolNotRendered"
	// spec.poolRole decides the pool.
	PoolSpecifiedInConfigReason = "SpecifiedInConfig"
	// The labels of the Machine decide the pool.
	PoolFromMachineLabelsReason = "MachineLabels"
	// The pool is worker, because no label names another pool.
	PoolDefaultedToWorkerReason = "DefaultedToWorker"
	// The pool is the recorded pool.
	PoolRecordedReason = "Recorded"
	// The pool is the one that the host keeps: docs/concepts.md#a-pool-that-stays-with-its-host.
	PoolRetainedByHostReason = "RetainedByHost"
	// No host is being installed that could request its configuration. The message says why.
	WaitingForHostReason = "WaitingForHost"
	// A host was chosen, and has not requested its configuration yet. The message says why, or what to check. The clock
	// of the host can be wrong: docs/images.md#a-clock-that-is-wrong.
	WaitingForRequestReason = "WaitingForRequest"
	// The host is not chosen or not being installed yet.
	HostNotReadyReason = "HostNotReady"
	// The host is in another namespace, or belongs to a HostClaim. Register it in the namespace of the Machine.
	HostNotUsableReason = "HostNotUsable"
	// The image gets no user data. Use a disk image.
	HostImageIgnoresUserDataReason = "HostImageIgnoresUserData"
	// Two sources set different values for one label, or the labels name another pool. Correct one of them.
	LabelConflictReason = "LabelConflict"
	// The host has network data, and the pool does not say which program of the image applies it. Set
	// spec.hosts.networkRenderer of the pool: docs/images.md#static-addresses.
	NetworkRendererNotSetReason = "NetworkRendererNotSet"
	// The Secret with the network data of the host is missing, invalid, or about interfaces that the host lacks.
	// Correct what the message names.
	NetworkDataInvalidReason = "NetworkDataInvalid"
	// A label rule needs a fact that is missing for the host. Add the fact, or change the rule.
	HostFactMissingReason = "HostFactMissing"
	// The result of a label rule is not a valid label value. Correct the rule or the fact.
	NodeLabelRuleInvalidReason = "NodeLabelRuleInvalid"
	// A Node with this name does not belong to this host. Delete the Node or, of two PoolbootConfigs that adopt it,
	// one.
	NodeNameTakenReason = "NodeNameTaken"
	// The name identifies something other than a Node. Give the Machine or the host another name:
	// docs/install.md#names-that-no-node-may-have.
	NodeNameReservedReason = "NodeNameReserved"
	// The API server in the kubeconfig of the Cluster does not answer, or does not accept the user. The log of the
	// manager has the cause.
	WorkloadClusterUnreachableReason = "WorkloadClusterUnreachable"
	// The kubeconfig Secret of the Cluster does not exist, or has a field that is refused. Correct it:
	// docs/dev/security.md#kubeconfigs-of-tenants.
	KubeconfigInvalidReason = "KubeconfigInvalid"
	// The workload cluster approves certificate requests of every bootstrap token. Change the ClusterRoleBinding that
	// the message names.
	CertificatesAutoApprovedReason = "CertificatesAutoApproved"
	// extraConfig cannot be used. Correct it.
	ExtraConfigInvalidReason = "ExtraConfigInvalid"
	// The host has its configuration and has not joined, and its join credential has expired. Replace the host, or boot
	// it again.
	JoinCredentialExpiredReason = "JoinCredentialExpired"
	// Another error occurred. See the message.
	BootFailedReason = "BootFailed"
	// Everything that the host needs exists.
	BootPreparedReason = "BootPrepared"
	// The host reports that Ignition failed at its first boot: docs/conditions.md#a-first-boot-that-fails.
	IgnitionFailedReason = "IgnitionFailed"
	// The host has requested its configuration again after Ignition failed.
	IgnitionRetriedReason = "IgnitionRetried"
	// The host has joined after Ignition had failed.
	IgnitionSucceededReason = "IgnitionSucceeded"
	// The kubelet or kubeadm of the host does not fit the version of the API server, so the host does not join. Hosts
	// that enroll or boot with an inline configuration say it only on their console:
	// docs/images.md#versions-of-kubernetes.
	VersionSkewReason = "VersionSkew"
	// The Node exists, and its kubelet has not registered yet.
	WaitingForKubeletReason = "WaitingForKubelet"
	// The Node is Ready in its pool.
	NodeReadyInPoolReason = "NodeReadyInPool"
	// The host was adopted and is as it was found. To put it in its pool, set spec.host.adoption to Follow:
	// docs/adopt.md.
	AdoptionPreviewReason = "AdoptionPreview"
	// The Node that the PoolbootConfig adopts has not joined its cluster yet. If it is not to join, correct its name:
	// docs/adopt.md.
	WaitingForNodeReason = "WaitingForNode"
	// The Node has joined and is not Ready. See its conditions.
	NodeNotReadyReason = "NodeNotReady"
	// The labels of the Node are not those of its pool. Correct them.
	NodeOutsidePoolReason = "NodeOutsidePool"
	// The Node of a host that has joined does not exist. Restart the kubelet, or remove the host.
	NodeMissingReason = "NodeMissing"
	// The Node has the label of a control plane. Remove a label that is wrong. A Node of a real control plane can only
	// be adopted for its own pool: docs/adopt.md#the-control-plane.
	ControlPlaneNodeReason = "ControlPlaneNode"
	// The PoolbootConfig is being deleted.
	DeletingReason = "Deleting"
)

// Reasons of the condition Updated of a PoolbootConfig. Those of hosts in an update are the states that agents report.
const (
	// The running host has the configuration of its pool.
	UpdateDoneReason = "Done"
	// The running host is to be updated. The message says what it waits for: its turn, a pause, a maintenance
	// window, a gate, or Cluster API.
	UpdateWaitingReason = "Waiting"
	// The Node is drained for an update. The message names the Pods and volumes that remain:
	// docs/updates.md#a-drain-that-does-not-end.
	UpdateDrainingReason = "Draining"
	// The host is being changed.
	UpdateApplyingReason = "Applying"
	// The host was changed and reboots.
	UpdateRebootingReason = "Rebooting"
	// The host was changed, and Metal3 applies firmware settings or updates while it reboots. The time that this takes
	// does not count: docs/updates.md#firmware-in-the-same-reboot.
	UpdateApplyingFirmwareReason = "ApplyingFirmware"
	// The host was changed, and Metal3 could not apply firmware settings or updates while it reboots. Metal3 retries.
	// To go on without them, remove them: docs/updates.md#firmware-in-the-same-reboot.
	FirmwareFailedReason = "FirmwareFailed"
	// The host was changed, and its Node must stay Ready for minReadySeconds.
	UpdateVerifyingReason = "Verifying"
	// The host is changed, reboots or is verified for 10 minutes longer than readyDeadlineSeconds. Check its console,
	// or replace it: docs/updates.md#when-an-update-stops.
	UpdateOverdueReason = "UpdateOverdue"
	// An update failed, and what it had changed was undone, or the host differs from its configuration. Correct the
	// configuration or the host, or run kubectl poolboot rollout retry: docs/updates.md#force-a-host.
	UpdateDegradedReason = "Degraded"
	// A running host cannot change to the configuration of its pool. Replace the host, or correct the configuration.
	UpdateUnreconcilableReason = "Unreconcilable"
	// What the running host should run cannot be determined. The message names the object to correct.
	AssignmentFailedReason = "AssignmentFailed"
	// The host runs no agent, so it keeps the configuration with which it booted. Renew its Machine to update it:
	// docs/pools.md#renewing-machines.
	NoAgentReason = "NoAgent"
	// The agent of the running host does not run, has not answered for 10 minutes, or has not reported since the Node
	// was Ready. Check the host and poolboot-agent.service on it.
	AgentNotAnsweringReason = "AgentNotAnswering"
	// The config server does not accept the certificate of the kubelet: docs/updates.md#when-an-update-stops.
	CertificateNotAcceptedReason = "CertificateNotAccepted"
	// An API server refuses a request that the update of the running host needs, or fails to answer it for a minute,
	// or a download fails or does not end. The message has the error.
	UpdateFailingReason = "UpdateFailing"
	// The kubelet of the running host does not stay up, or a unit of its configuration failed or does not exist. The
	// message has the command that shows its log on the host.
	UnitsFailingReason = "UnitsFailing"
	// The agent of the running host reports in a version that the manager does not know. Update the manager first; its
	// agents follow.
	ReportNotUnderstoodReason = "ReportNotUnderstood"
)

// Reasons of events about a PoolbootConfig. Events report problems and their resolution: a problem by the reason of the
// condition that becomes false. A boot without a problem creates no event, because its times are in status.boot.
// docs/conditions.md lists those with a comment that begins with "Warning:".
const (
	EventPoolDecided       = "PoolDecided"
	EventDataSecretCreated = "DataSecretCreated"
	EventBootPrepared      = "BootPrepared"
	EventBootWithdrawn     = "BootWithdrawn"
	EventNodeReady         = "NodeReady"
	EventTokenRotated      = "TokenRotated"
	EventLabelsRestored    = "LabelsRestored"
	EventUpdated           = "Updated"

	// Warning: Cluster API copies labels of the Machine that select another pool to the Node. Change both.
	EventPoolChanged = "PoolChanged"
	// Warning: The pool that the BareMetalHost keeps does not exist. Create it, or remove poolboot.io/retained-pool.
	EventRetainedPoolNotFound = "RetainedPoolNotFound"
	// Warning: The message says why the token was not rotated.
	EventTokenNotRotated = "TokenNotRotated"
	// Warning: If the address is not one of the host, rotate the token: docs/install.md#security.
	EventTokenUsedFromSecondAddress = "TokenUsedFromSecondAddress"
	// Warning: Add the address to poolboot.io/addresses of the BareMetalHost, or if it is not one of the host, rotate
	// the token.
	EventTokenAddressRefused = "TokenAddressRefused"
	// Warning: A drain takes longer than the pool allows: docs/updates.md#a-drain-that-does-not-end.
	EventDrainTimedOut = "DrainTimedOut"
	// Warning: The reboot of an update does not apply pending firmware settings or updates. The message says why:
	// docs/updates.md#firmware-in-the-same-reboot.
	EventFirmwareNotApplied = "FirmwareNotApplied"
	// Warning: An update did something else than predicted. See the journal of poolboot-agent.service.
	EventPredictionDiffers = "PredictionDiffers"
	// Warning: The host got a certificate for a second key, for example because it was installed again.
	EventCertificateRequestApproved = "CertificateRequestApproved"
	// Warning: The join credential was used for something that it is not for. If you did not do that, replace the
	// host.
	EventCertificateRequestDenied = "CertificateRequestDenied"
	// Warning: Two keys request the certificate of one Node. If the host did not restart, replace it.
	EventCertificateRequestContested = "CertificateRequestContested"
	// Warning: Correct what the message names, such as an address.
	EventServingCertificateNotApproved = "ServingCertificateNotApproved"
	// Warning: Delete the objects in the workload cluster that the message names.
	EventLeftInWorkloadCluster = "LeftInWorkloadCluster"
	// Warning: Another PoolbootConfig is a copy of this one. Delete the copy.
	EventPointerIDNotUnique = "PointerIDNotUnique"
)
