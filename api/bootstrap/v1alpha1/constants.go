package v1alpha1

// Finalizer is on every PoolbootConfig whose removal has something to clean up: the machine's overlay, its join
// credential and a Node whose kubelet never came.
const Finalizer = "bootstrap.cluster.x-k8s.io/poolbootconfig"

// Annotations of a PoolbootConfig by which the config server knows a host. They are metadata, not status, so that they
// survive clusterctl move.
const (
	// PointerIDAnnotation is the last part of the URL in the host's pointer: the UID that the Machine had when its
	// bootstrap Secret was made; without a Machine that of the PoolbootConfig, and of a host that enrolled a name made
	// of the enrollment's and its own.
	PointerIDAnnotation = "pool.cluster.x-k8s.io/pointer-id"

	// TokenHashAnnotation is the SHA-256 of the host's bearer token, bound to the PoolbootConfig's namespace, name and
	// UID, in hex. A revoked token has none.
	TokenHashAnnotation = "pool.cluster.x-k8s.io/token-sha256"

	// TokenUIDAnnotation is the UID that the hash is bound to: that of the PoolbootConfig; of a host that enrolled,
	// that of the Secret with the enrollment token. Another one is that of an earlier object, as after clusterctl move:
	// then the hash accepts no token until the manager has bound it again.
	TokenUIDAnnotation = "pool.cluster.x-k8s.io/token-uid"

	// TokenStateAnnotation is the TokenState of a token that the config server does not accept. A token that can be
	// used has none.
	TokenStateAnnotation = "pool.cluster.x-k8s.io/token-state"

	// RotateTokenAnnotation asks, with any value, for a new token. It is taken away when that is done.
	RotateTokenAnnotation = "pool.cluster.x-k8s.io/rotate-token"

	// TokenRotatedAnnotation is when the token was last rotated (RFC 3339).
	TokenRotatedAnnotation = "pool.cluster.x-k8s.io/token-rotated"
)

// TokenState is why a host's token is not accepted any more. With a value that is none of these it is not accepted
// either.
type TokenState string

const (
	// TokenStateExpired is that of a token whose host did not join in time. A rotation replaces the token.
	TokenStateExpired TokenState = "Expired"

	// TokenStateRevoked is that of a token whose host has joined: its Node was Ready in its pool.
	TokenStateRevoked TokenState = "Revoked"
)

// CredentialIDAnnotation is on inline data Secrets and overlay Secrets and holds the ID of the join credential in them.
const CredentialIDAnnotation = "pool.cluster.x-k8s.io/credential-id"

// DataSecretPoolAnnotation is on inline data Secrets and holds the role of the pool whose configuration is in them. It
// is metadata of the Secret itself, so that neither a crash nor clusterctl move parts the two.
const DataSecretPoolAnnotation = "pool.cluster.x-k8s.io/pool-role"

// Overlay Secrets: the configuration of one machine, made when its host asks, in the config server's own namespace.
const (
	// OverlayNamePrefix and the UID of the PoolbootConfig make the name of an overlay Secret.
	OverlayNamePrefix = "overlay-"

	// OverlayLabel is on every overlay Secret; its value is the UID of the PoolbootConfig.
	OverlayLabel = "pool.cluster.x-k8s.io/overlay-for"

	// OverlayExpiresAnnotation is when the join credential in the overlay ends (RFC 3339).
	OverlayExpiresAnnotation = "pool.cluster.x-k8s.io/expires"

	// OverlayConfigurationAnnotation names the rendered config that the host is to boot with.
	OverlayConfigurationAnnotation = "pool.cluster.x-k8s.io/configuration"

	// OverlayKey is the key of the overlay in the Secret: Ignition, packed as the answer to the host carries it (a data
	// URL of a gzip file).
	OverlayKey = "packed"
)

// Condition types of a PoolbootConfig.
const (
	// DataSecretAvailableCondition is true once the bootstrap Secret stands; false again when it was lost before the
	// host has joined.
	DataSecretAvailableCondition = "DataSecretAvailable"
	// PoolDecidedCondition is true when it is clear which pool the Machine belongs to.
	PoolDecidedCondition = "PoolDecided"
	// BootPreparedCondition is true once the Node, the join credential and the overlay stood complete for a host that
	// asked; unknown before the host asks; false when they can't be made.
	BootPreparedCondition = "BootPrepared"
	// UserDataSetCondition is true when the user data of the BareMetalHost that spec.host names is the data Secret.
	// Other PoolbootConfigs don't have it.
	UserDataSetCondition = "UserDataSet"
	// TokenUsableCondition is false when the host's token has expired before the host joined, and true again once it
	// was rotated. PoolbootConfigs whose token could always be used don't have it.
	TokenUsableCondition = "TokenUsable"
	// NodeInPoolCondition is true when the Machine's Node is Ready and in the recorded pool.
	NodeInPoolCondition = "NodeInPool"
)

// Reasons of the conditions of a PoolbootConfig.
const (
	WaitingForOwnerReason            = "WaitingForOwner"
	WaitingForClusterReason          = "WaitingForCluster"
	WaitingForInfrastructureReason   = "WaitingForClusterInfrastructure"
	WaitingForControlPlaneReason     = "WaitingForControlPlane"
	ControlPlaneNotSupportedReason   = "ControlPlaneNotSupported"
	MachinePoolNotSupportedReason    = "MachinePoolNotSupported"
	DataSecretCreatedReason          = "DataSecretCreated"
	DataSecretFailedReason           = "DataSecretFailed"
	DataSecretPresetReason           = "DataSecretPreset"
	DataSecretNotOwnedReason         = "DataSecretNotOwned"
	WaitingForSecretDeletionReason   = "WaitingForSecretDeletion"
	HostEnrolledReason               = "HostEnrolled"
	TokenExpiredReason               = "TokenExpired"
	TokenLiveReason                  = "TokenLive"
	UserDataSetReason                = "UserDataSet"
	UserDataTakenReason              = "UserDataTaken"
	HostProvisionedBeforeReason      = "HostProvisionedBefore"
	PoolNotFoundReason               = "PoolNotFound"
	PoolConflictReason               = "PoolConflict"
	PoolNotRegistrableReason         = "PoolNotRegistrable"
	PoolNotRenderedReason            = "PoolNotRendered"
	PoolFromSpecReason               = "SpecifiedInConfig"
	PoolFromLabelsReason             = "MachineLabels"
	PoolDefaultedReason              = "DefaultedToWorker"
	PoolRecordedReason               = "Recorded"
	PoolRetainedByHostReason         = "RetainedByHost"
	WaitingForHostReason             = "WaitingForHost"
	HostNotReadyReason               = "HostNotReady"
	HostImageIgnoresUserDataReason   = "HostImageIgnoresUserData"
	LabelConflictReason              = "LabelConflict"
	HostFactMissingReason            = "HostFactMissing"
	NodeLabelRuleInvalidReason       = "NodeLabelRuleInvalid"
	NodeNameTakenReason              = "NodeNameTaken"
	NodeNameReservedReason           = "NodeNameReserved"
	WorkloadClusterUnreachableReason = "WorkloadClusterUnreachable"
	KubeconfigInvalidReason          = "KubeconfigInvalid"
	CertificatesAutoApprovedReason   = "CertificatesAutoApproved"
	ExtraConfigInvalidReason         = "ExtraConfigInvalid"
	JoinCredentialExpiredReason      = "JoinCredentialExpired"
	BootFailedReason                 = "BootFailed"
	BootPreparedReason               = "BootPrepared"
	WaitingForKubeletReason          = "WaitingForKubelet"
	NodeReadyInPoolReason            = "NodeReadyInPool"
	NodeNotReadyReason               = "NodeNotReady"
	NodeOutsidePoolReason            = "NodeOutsidePool"
	NodeMissingReason                = "NodeMissing"
	NodeControlPlaneReason           = "ControlPlaneNode"
	DeletingReason                   = "Deleting"
)

// Events of a PoolbootConfig, by reason. What is wrong is told by events with the reason of the condition that says so.
const (
	EventPoolDecided       = "PoolDecided"
	EventPoolChanged       = "PoolChanged"
	EventRetainedPoolGone  = "RetainedPoolNotFound"
	EventDataSecretCreated = "DataSecretCreated"
	EventBootPrepared      = "BootPrepared"
	EventBootWithdrawn     = "BootWithdrawn"
	EventNodeReady         = "NodeReady"
	EventTokenRevoked      = "TokenRevoked"
	EventTokenRotated      = "TokenRotated"
	EventTokenNotRotated   = "TokenNotRotated"
	EventSecondAddress     = "TokenUsedFromSecondAddress"
	EventAddressRefused    = "TokenAddressRefused"
	EventLabelsRestored    = "LabelsRestored"
	EventRequestApproved   = "CertificateRequestApproved" // of a key that is not the first
	EventRequestDenied     = "CertificateRequestDenied"
	EventRequestContested  = "CertificateRequestContested"
	EventServingRefused    = "ServingCertificateNotApproved"

	// EventLeftInWorkloadCluster says what could not be deleted there with a PoolbootConfig. It is on the Machine too.
	EventLeftInWorkloadCluster = "LeftInWorkloadCluster"

	// EventPointerIDNotUnique says that another PoolbootConfig has the same pointer id.
	EventPointerIDNotUnique = "PointerIDNotUnique"
)
