// Package outlook has the outlook of every reason of a condition: whether the condition resolves on its own, or a
// person must act. Controllers, the counts of pools and kubectl poolboot use this table. docs/conditions.md has the
// same table, which make generate writes. It also has what a user can do about a host, which depends on whether the
// host has a Machine, an annotated BareMetalHost, or enrolled. The package is pure.
package outlook

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Outlook describes whether a condition resolves on its own.
type Outlook string

const (
	// Fine means that nothing is wrong.
	Fine Outlook = "Fine"
	// Waits means that nothing is wrong, and the next step has not happened yet.
	Waits Outlook = "Waits"
	// Retries means that something is wrong that can resolve on its own. Poolboot retries.
	Retries Outlook = "Retries"
	// NeedsPerson means that nothing changes until a person acts.
	NeedsPerson Outlook = "NeedsPerson"
)

// table has every reason of the API.
var table = map[string]Outlook{
	bootstrapv1.WaitingForOwnerReason:                 Waits,
	bootstrapv1.WaitingForClusterReason:               Waits,
	bootstrapv1.WaitingForClusterInfrastructureReason: Waits,
	bootstrapv1.WaitingForControlPlaneReason:          Waits,
	bootstrapv1.WaitingForSecretDeletionReason:        Waits,
	bootstrapv1.WaitingForHostReason:                  Waits,
	bootstrapv1.WaitingForRequestReason:               Waits,
	bootstrapv1.WaitingForKubeletReason:               Waits,
	bootstrapv1.HostNotReadyReason:                    Waits,
	bootstrapv1.HostNotUsableReason:                   NeedsPerson,
	bootstrapv1.DeletingReason:                        Waits,
	bootstrapv1.ControlPlaneNotSupportedReason:        NeedsPerson,
	bootstrapv1.MachinePoolNotSupportedReason:         NeedsPerson,
	bootstrapv1.DataSecretCreatedReason:               Fine,
	bootstrapv1.DataSecretFailedReason:                NeedsPerson,
	bootstrapv1.DataSecretPresetReason:                NeedsPerson,
	bootstrapv1.DataSecretNotOwnedReason:              NeedsPerson,
	bootstrapv1.HostEnrolledReason:                    Fine,
	bootstrapv1.HostAdoptedReason:                     Fine,
	bootstrapv1.AdoptionPreviewReason:                 Waits,
	bootstrapv1.TokenExpiredReason:                    NeedsPerson,
	bootstrapv1.TokenLiveReason:                       Fine,
	bootstrapv1.UserDataSetReason:                     Fine,
	bootstrapv1.UserDataTakenReason:                   NeedsPerson,
	bootstrapv1.HostProvisionedBeforeReason:           NeedsPerson,
	bootstrapv1.PoolNotFoundReason:                    NeedsPerson,
	bootstrapv1.PoolConflictReason:                    NeedsPerson,
	bootstrapv1.PoolNotRegistrableReason:              NeedsPerson,
	bootstrapv1.PoolNotRenderedReason:                 Retries,
	bootstrapv1.PoolSpecifiedInConfigReason:           Fine,
	bootstrapv1.PoolFromMachineLabelsReason:           Fine,
	bootstrapv1.PoolDefaultedToWorkerReason:           Fine,
	bootstrapv1.PoolRecordedReason:                    Fine,
	bootstrapv1.PoolRetainedByHostReason:              Fine,
	bootstrapv1.HostImageIgnoresUserDataReason:        NeedsPerson,
	bootstrapv1.LabelConflictReason:                   NeedsPerson,
	bootstrapv1.NetworkRendererNotSetReason:           NeedsPerson,
	bootstrapv1.NetworkDataInvalidReason:              NeedsPerson,
	bootstrapv1.HostFactMissingReason:                 NeedsPerson,
	bootstrapv1.NodeLabelRuleInvalidReason:            NeedsPerson,
	bootstrapv1.NodeNameTakenReason:                   NeedsPerson,
	bootstrapv1.NodeNameReservedReason:                NeedsPerson,
	bootstrapv1.WorkloadClusterUnreachableReason:      Retries,
	bootstrapv1.KubeconfigInvalidReason:               NeedsPerson,
	bootstrapv1.CertificatesAutoApprovedReason:        NeedsPerson,
	bootstrapv1.ExtraConfigInvalidReason:              NeedsPerson,
	bootstrapv1.JoinCredentialExpiredReason:           NeedsPerson,
	bootstrapv1.BootFailedReason:                      NeedsPerson,
	bootstrapv1.BootPreparedReason:                    Fine,
	bootstrapv1.IgnitionFailedReason:                  NeedsPerson,
	bootstrapv1.VersionSkewReason:                     NeedsPerson,
	bootstrapv1.IgnitionRetriedReason:                 Waits,
	bootstrapv1.IgnitionSucceededReason:               Fine,
	bootstrapv1.NodeReadyInPoolReason:                 Fine,
	bootstrapv1.WaitingForNodeReason:                  Waits,
	bootstrapv1.NodeNotReadyReason:                    Retries,
	bootstrapv1.NodeOutsidePoolReason:                 NeedsPerson,
	bootstrapv1.NodeMissingReason:                     NeedsPerson,
	bootstrapv1.ControlPlaneNodeReason:                NeedsPerson,
	bootstrapv1.UpdateDoneReason:                      Fine,
	bootstrapv1.UpdateWaitingReason:                   Waits,
	bootstrapv1.UpdateDrainingReason:                  Waits,
	bootstrapv1.UpdateApplyingReason:                  Waits,
	bootstrapv1.UpdateRebootingReason:                 Waits,
	bootstrapv1.UpdateApplyingFirmwareReason:          Waits,
	bootstrapv1.FirmwareFailedReason:                  NeedsPerson,
	bootstrapv1.UpdateVerifyingReason:                 Waits,
	bootstrapv1.UpdateOverdueReason:                   NeedsPerson,
	bootstrapv1.UpdateDegradedReason:                  NeedsPerson,
	bootstrapv1.UpdateUnreconcilableReason:            NeedsPerson,
	bootstrapv1.AssignmentFailedReason:                NeedsPerson,
	bootstrapv1.NoAgentReason:                         Waits,
	bootstrapv1.AgentNotAnsweringReason:               NeedsPerson,
	bootstrapv1.CertificateNotAcceptedReason:          NeedsPerson,
	bootstrapv1.UpdateFailingReason:                   Retries,
	bootstrapv1.UnitsFailingReason:                    NeedsPerson,
	bootstrapv1.ReportNotUnderstoodReason:             NeedsPerson,

	poolv1.AllHostsUpdatedReason:            Fine,
	poolv1.HostsPendingReason:               Waits,
	poolv1.HostsUpdatingReason:              Waits,
	poolv1.RolloutStoppedReason:             NeedsPerson,
	poolv1.RolloutBlockedReason:             Retries,
	poolv1.HostsUnavailableReason:           Retries,
	poolv1.HostsDegradedReason:              NeedsPerson,
	poolv1.NothingRenderedReason:            Retries,
	poolv1.RolloutPausedReason:              Waits,
	poolv1.RenderedReason:                   Fine,
	poolv1.RenderFailedReason:               NeedsPerson,
	poolv1.PausedConfigurationInvalidReason: NeedsPerson,
	poolv1.PinnedConfigurationInvalidReason: NeedsPerson,
	poolv1.ConfigurationDiffersReason:       Waits,
	poolv1.ConfigurationSameReason:          Fine,
	poolv1.ClusterNotFoundReason:            NeedsPerson,
	poolv1.WorkerPoolMissingReason:          NeedsPerson,
	poolv1.DuplicateRoleReason:              NeedsPerson,
	poolv1.AsExpectedReason:                 Fine,
	poolv1.MachineConfigValidReason:         Fine,
	poolv1.MachineConfigInvalidReason:       NeedsPerson,
	poolv1.GatesOpenReason:                  Fine,
	poolv1.GateClosedReason:                 Waits,
	poolv1.ControlPlaneNotReadyReason:       Waits,
	poolv1.EarlierPoolsPendingReason:        Waits,
	poolv1.CanaryPendingReason:              Waits,
	poolv1.ClusterLimitReason:               Waits,
	poolv1.ApprovalPendingReason:            NeedsPerson,
	poolv1.HostsSkippedReason:               Waits,
	poolv1.GateUnreadableReason:             NeedsPerson,
}

// Of returns the outlook of a reason. For an unknown reason, it returns Retries.
func Of(reason string) Outlook {
	if is, known := table[reason]; known {
		return is
	}
	return Retries
}

// retryable has the reasons of the condition Updated that a host can correct by applying its configuration again.
var retryable = map[string]bool{bootstrapv1.UpdateDegradedReason: true}

// IsRetryable reports whether kubectl poolboot rollout retry can correct a host with this reason.
func IsRetryable(reason string) bool { return retryable[reason] }

// ReasonOf returns the reason of the condition that reports an error, or "" if the type of the error has none.
func ReasonOf(err error) string {
	reported, ok := errors.AsType[interface {
		error
		Reason() string
	}](err)
	if !ok {
		return ""
	}
	return reported.Reason()
}

// IsWrong reports whether a condition of a PoolbootConfig is False, and not only because the next step has not happened
// yet.
func IsWrong(c *metav1.Condition) bool {
	return c != nil && c.Status == metav1.ConditionFalse && Of(c.Reason) != Waits
}

// NeedsAction reports whether a condition of a PoolbootConfig is False until a person acts. What is retried needs
// nobody.
func NeedsAction(c *metav1.Condition) bool {
	return c != nil && c.Status == metav1.ConditionFalse && Of(c.Reason) == NeedsPerson
}

// kinds are the types of the conditions that report what blocks the host of a PoolbootConfig, in the order of the
// steps.
var kinds = []string{
	bootstrapv1.PoolDecidedCondition,
	bootstrapv1.DataSecretAvailableCondition,
	bootstrapv1.UserDataSetCondition,
	bootstrapv1.TokenUsableCondition,
	bootstrapv1.BootPreparedCondition,
	bootstrapv1.IgnitionSucceededCondition,
	bootstrapv1.VersionsFitCondition,
	bootstrapv1.NodeInPoolCondition,
	bootstrapv1.UpdatedCondition,
}

// Applies reports whether a condition still applies to a PoolbootConfig. After the host has joined, the conditions of
// the boot no longer apply. Before that, a missing Node does not count, because Poolboot creates it again.
func Applies(config *bootstrapv1.PoolbootConfig, c *metav1.Condition) bool {
	if record.IsBootComplete(config) {
		return c.Type == bootstrapv1.NodeInPoolCondition || c.Type == bootstrapv1.PoolDecidedCondition || c.Type == bootstrapv1.UpdatedCondition
	}
	return c.Reason != bootstrapv1.NodeMissingReason
}

// FindNeedsPerson returns the condition of a PoolbootConfig for which a person must act. It returns the condition of
// the latest step if there are several, and nil if there is none.
func FindNeedsPerson(config *bootstrapv1.PoolbootConfig) (found *metav1.Condition) {
	for _, kind := range kinds {
		c := conditions.Get(config, kind)
		if NeedsAction(c) && Applies(config, c) {
			found = c
		}
	}
	return found
}
