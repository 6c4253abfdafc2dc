package v1alpha1

// Finalizer is on every PoolbootConfig whose deletion requires a cleanup: of the machine's overlay, its join credential
// and a Node that no kubelet adopted.
const Finalizer = "bootstrap.cluster.x-k8s.io/poolbootconfig"

// Annotations of a PoolbootConfig by which the config server identifies a host. They are metadata because clusterctl
// move drops status.
const (
	// PointerIDAnnotation is the last part of the URL in the host's pointer: the UID that the Machine had when its
	// data Secret was created. Without a Machine it is the UID of the PoolbootConfig. For a host that enrolled, it
	// consists of the Enrollment's name and the host's name.
	PointerIDAnnotation = "poolboot.io/pointer-id"

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
	// NodeInPoolCondition is true when the Machine's Node is Ready and in the recorded pool.
	NodeInPoolCondition = "NodeInPool"
	// UpdatedCondition is true when the running host runs what it should run, and unknown if it has no agent.
	// PoolbootConfigs whose host has not joined don't have it.
	UpdatedCondition = "Updated"
)

// Reasons of the conditions of a PoolbootConfig.
const (
	WaitingForOwnerReason                 = "WaitingForOwner"
	WaitingForClusterReason               = "WaitingForCluster"
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"
	WaitingForControlPlaneReason          = "WaitingForControlPlane"
	ControlPlaneNotSupportedReason        = "ControlPlaneNotSupported"
	MachinePoolNotSupportedReason         = "MachinePoolNotSupported"
	DataSecretCreatedReason               = "DataSecretCreated"
	DataSecretFailedReason                = "DataSecretFailed"
	DataSecretPresetReason                = "DataSecretPreset"
	DataSecretNotOwnedReason              = "DataSecretNotOwned"
	WaitingForSecretDeletionReason        = "WaitingForSecretDeletion"
	HostEnrolledReason                    = "HostEnrolled"
	TokenExpiredReason                    = "TokenExpired"
	TokenLiveReason                       = "TokenLive"
	UserDataSetReason                     = "UserDataSet"
	UserDataTakenReason                   = "UserDataTaken"
	HostProvisionedBeforeReason           = "HostProvisionedBefore"
	PoolNotFoundReason                    = "PoolNotFound"
	PoolConflictReason                    = "PoolConflict"
	PoolNotRegistrableReason              = "PoolNotRegistrable"
	PoolNotRenderedReason                 = "PoolNotRendered"
	PoolSpecifiedInConfigReason           = "SpecifiedInConfig"
	PoolFromMachineLabelsReason           = "MachineLabels"
	PoolDefaultedToWorkerReason           = "DefaultedToWorker"
	PoolRecordedReason                    = "Recorded"
	PoolRetainedByHostReason              = "RetainedByHost"
	WaitingForHostReason                  = "WaitingForHost"
	HostNotReadyReason                    = "HostNotReady"
	HostImageIgnoresUserDataReason        = "HostImageIgnoresUserData"
	LabelConflictReason                   = "LabelConflict"
	HostFactMissingReason                 = "HostFactMissing"
	NodeLabelRuleInvalidReason            = "NodeLabelRuleInvalid"
	NodeNameTakenReason                   = "NodeNameTaken"
	NodeNameReservedReason                = "NodeNameReserved"
	WorkloadClusterUnreachableReason      = "WorkloadClusterUnreachable"
	KubeconfigInvalidReason               = "KubeconfigInvalid"
	CertificatesAutoApprovedReason        = "CertificatesAutoApproved"
	ExtraConfigInvalidReason              = "ExtraConfigInvalid"
	JoinCredentialExpiredReason           = "JoinCredentialExpired"
	BootFailedReason                      = "BootFailed"
	BootPreparedReason                    = "BootPrepared"
	IgnitionFailedReason                  = "IgnitionFailed"
	IgnitionRetriedReason                 = "IgnitionRetried"
	IgnitionSucceededReason               = "IgnitionSucceeded"
	WaitingForKubeletReason               = "WaitingForKubelet"
	NodeReadyInPoolReason                 = "NodeReadyInPool"
	NodeNotReadyReason                    = "NodeNotReady"
	NodeOutsidePoolReason                 = "NodeOutsidePool"
	NodeMissingReason                     = "NodeMissing"
	ControlPlaneNodeReason                = "ControlPlaneNode"
	DeletingReason                        = "Deleting"
)

// Reasons of the condition Updated of a PoolbootConfig. Those of hosts in an update are the states that agents report.
const (
	UpdateDoneReason             = "Done"
	UpdateWaitingReason          = "Waiting"
	UpdateDrainingReason         = "Draining"
	UpdateApplyingReason         = "Applying"
	UpdateRebootingReason        = "Rebooting"
	UpdateVerifyingReason        = "Verifying"
	UpdateDegradedReason         = "Degraded"
	UpdateUnreconcilableReason   = "Unreconcilable"
	AssignmentFailedReason       = "AssignmentFailed"
	NoAgentReason                = "NoAgent"
	AgentNotAnsweringReason      = "AgentNotAnswering"
	CertificateNotAcceptedReason = "CertificateNotAccepted"
	UpdateFailingReason          = "UpdateFailing"
	UnitsFailingReason           = "UnitsFailing"
	ReportNotUnderstoodReason    = "ReportNotUnderstood"
)

// Reasons of events about a PoolbootConfig. Events report problems and their resolution: a problem by the reason of the
// condition that becomes false. A boot without a problem creates no event, because its times are in status.boot.
const (
	EventPoolDecided                   = "PoolDecided"
	EventPoolChanged                   = "PoolChanged"
	EventRetainedPoolNotFound          = "RetainedPoolNotFound"
	EventDataSecretCreated             = "DataSecretCreated"
	EventBootPrepared                  = "BootPrepared"
	EventBootWithdrawn                 = "BootWithdrawn"
	EventNodeReady                     = "NodeReady"
	EventTokenRotated                  = "TokenRotated"
	EventTokenNotRotated               = "TokenNotRotated"
	EventTokenUsedFromSecondAddress    = "TokenUsedFromSecondAddress"
	EventTokenAddressRefused           = "TokenAddressRefused"
	EventLabelsRestored                = "LabelsRestored"
	EventUpdateStarted                 = "UpdateStarted"
	EventUpdated                       = "Updated"
	EventPredictionDiffers             = "PredictionDiffers"          // an update did something else to the host than predicted
	EventCertificateRequestApproved    = "CertificateRequestApproved" // not for the first key of a host
	EventCertificateRequestDenied      = "CertificateRequestDenied"
	EventCertificateRequestContested   = "CertificateRequestContested"
	EventServingCertificateNotApproved = "ServingCertificateNotApproved"

	// EventLeftInWorkloadCluster names the objects in the workload cluster that could not be deleted with a
	// PoolbootConfig. It is also on the Machine.
	EventLeftInWorkloadCluster = "LeftInWorkloadCluster"

	// EventPointerIDNotUnique reports that another PoolbootConfig has the same pointer ID.
	EventPointerIDNotUnique = "PointerIDNotUnique"
)
