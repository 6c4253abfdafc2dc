// Package outlook says of every reason of a condition what becomes of it: it passes by itself, or a person has to act.
// It is the one table that controllers, pools' counts and kubectl poolboot go by. docs/conditions.md repeats it. It is
// pure.
package outlook

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Outlook is what becomes of a condition with a reason.
type Outlook string

const (
	// Fine says that nothing is wrong.
	Fine Outlook = "Fine"
	// Waits says that the next step has yet to come, and nothing is wrong.
	Waits Outlook = "Waits"
	// Retries says that something is wrong that may pass by itself. Poolboot retries.
	Retries Outlook = "Retries"
	// NeedsPerson says that nothing changes until a person acts.
	NeedsPerson Outlook = "NeedsPerson"
)

// table has every reason constant of the API.
var table = map[string]Outlook{
	bootstrapv1.WaitingForOwnerReason:                 Waits,
	bootstrapv1.WaitingForClusterReason:               Waits,
	bootstrapv1.WaitingForClusterInfrastructureReason: Waits,
	bootstrapv1.WaitingForControlPlaneReason:          Waits,
	bootstrapv1.WaitingForSecretDeletionReason:        Waits,
	bootstrapv1.WaitingForHostReason:                  Waits,
	bootstrapv1.WaitingForKubeletReason:               Waits,
	bootstrapv1.HostNotReadyReason:                    Waits,
	bootstrapv1.DeletingReason:                        Waits,
	bootstrapv1.ControlPlaneNotSupportedReason:        NeedsPerson,
	bootstrapv1.MachinePoolNotSupportedReason:         NeedsPerson,
	bootstrapv1.DataSecretCreatedReason:               Fine,
	bootstrapv1.DataSecretFailedReason:                NeedsPerson,
	bootstrapv1.DataSecretPresetReason:                NeedsPerson,
	bootstrapv1.DataSecretNotOwnedReason:              NeedsPerson,
	bootstrapv1.HostEnrolledReason:                    Fine,
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
	bootstrapv1.NodeReadyInPoolReason:                 Fine,
	bootstrapv1.NodeNotReadyReason:                    Retries,
	bootstrapv1.NodeOutsidePoolReason:                 NeedsPerson,
	bootstrapv1.NodeMissingReason:                     NeedsPerson,
	bootstrapv1.ControlPlaneNodeReason:                NeedsPerson,

	poolv1.AllMachinesUpdatedReason:         Fine,
	poolv1.MachinesPendingReason:            Waits,
	poolv1.MachinesUnavailableReason:        Retries,
	poolv1.MachinesDegradedReason:           NeedsPerson,
	poolv1.NothingRenderedReason:            Retries,
	poolv1.RolloutPausedReason:              Waits,
	poolv1.RenderedReason:                   Fine,
	poolv1.RenderFailedReason:               NeedsPerson,
	poolv1.PausedConfigurationInvalidReason: NeedsPerson,
	poolv1.ClusterNotFoundReason:            NeedsPerson,
	poolv1.WorkerPoolMissingReason:          NeedsPerson,
	poolv1.DuplicateRoleReason:              NeedsPerson,
	poolv1.AsExpectedReason:                 Fine,
}

// Of returns the outlook of a reason. One that is not in the table is something wrong that may pass.
func Of(reason string) Outlook {
	if is, known := table[reason]; known {
		return is
	}
	return Retries
}

// IsWrong says whether a condition of a PoolbootConfig is False for another reason than that the next step has yet to
// come.
func IsWrong(c *metav1.Condition) bool {
	return c != nil && c.Status == metav1.ConditionFalse && Of(c.Reason) != Waits
}

// kinds are the conditions of a PoolbootConfig that say what keeps its host, those of later steps last.
var kinds = []string{
	bootstrapv1.PoolDecidedCondition,
	bootstrapv1.DataSecretAvailableCondition,
	bootstrapv1.UserDataSetCondition,
	bootstrapv1.TokenUsableCondition,
	bootstrapv1.BootPreparedCondition,
	bootstrapv1.NodeInPoolCondition,
}

// Counts says whether a condition still says something about a PoolbootConfig: those of the boot do not once the host
// has joined, and before that a Node that is missing is made again.
func Counts(config *bootstrapv1.PoolbootConfig, c *metav1.Condition) bool {
	if record.IsBootComplete(config) {
		return c.Type == bootstrapv1.NodeInPoolCondition || c.Type == bootstrapv1.PoolDecidedCondition
	}
	return c.Reason != bootstrapv1.NodeMissingReason
}

// ForPerson returns the condition of a PoolbootConfig by which a person has to act, that of the latest step; nil when
// none has to.
func ForPerson(config *bootstrapv1.PoolbootConfig) (found *metav1.Condition) {
	for _, kind := range kinds {
		c := conditions.Get(config, kind)
		if c != nil && c.Status == metav1.ConditionFalse && Of(c.Reason) == NeedsPerson && Counts(config, c) {
			found = c
		}
	}
	return found
}
