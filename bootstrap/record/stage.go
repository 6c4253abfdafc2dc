package record

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Stage is the current stage of a boot.
type Stage string

// Stages of a boot in their order, and the stages after it.
const (
	// StagePending means that the data Secret does not exist yet.
	StagePending Stage = "Pending"
	// StageWaitingForHost means that the data Secret exists, and the infrastructure provider has not chosen a host, or
	// that the Node of an adoption has not joined.
	StageWaitingForHost Stage = "WaitingForHost"
	// StageProvisioning means that a host was chosen, and has not sent a boot request.
	StageProvisioning Stage = "Provisioning"
	// StagePreparing means that the host has sent a boot request, and its Node, join credential or overlay does not
	// exist yet.
	StagePreparing Stage = "Preparing"
	// StageServing means that the boot is prepared, and the host has not received its configuration.
	StageServing Stage = "Serving"
	// StageJoining means that the host has its configuration, and its Node has not been Ready in its pool.
	StageJoining Stage = "Joining"

	// StageAsFound means that the host was adopted and is as it was found, in no pool.
	StageAsFound Stage = "AsFound"
	// StageReady means that the boot is complete and the Node is Ready in its pool.
	StageReady Stage = "Ready"
	// StageNotReady means that the boot is complete, and the Node is not Ready or missing.
	StageNotReady Stage = "NotReady"
	// StageOutsidePool means that the boot is complete, and the labels of the Node decide no pool. It can be Ready.
	StageOutsidePool Stage = "OutsidePool"
	// StageDeleting means that the PoolbootConfig is being deleted.
	StageDeleting Stage = "Deleting"
)

// IsAfterBoot reports whether the boot is complete, and the PoolbootConfig is not being deleted.
func (s Stage) IsAfterBoot() bool {
	return s == StageReady || s == StageNotReady || s == StageOutsidePool
}

// stageEndSteps has the step that ends each stage of a boot.
var stageEndSteps = []struct {
	stage Stage
	by    Step
}{
	{StagePending, StepDataSecretCreated},
	{StageWaitingForHost, StepHostChosen},
	{StageProvisioning, StepBootRequested},
	{StagePreparing, StepBootPrepared},
	{StageServing, StepConfigServed},
	{StageJoining, StepNodeReady},
}

// Stages returns the stages of a boot, in their order.
func Stages() []Stage {
	stages := make([]Stage, len(stageEndSteps))
	for i, end := range stageEndSteps {
		stages[i] = end.stage
	}
	return stages
}

// StageOf returns the stage of a boot, and the time when the stage started.
func StageOf(config *bootstrapv1.PoolbootConfig) (Stage, time.Time) {
	inPool := conditions.Get(config, bootstrapv1.NodeInPoolCondition)
	switch {
	case config.DeletionTimestamp != nil:
		return StageDeleting, config.DeletionTimestamp.Time
	case inPool != nil && inPool.Reason == bootstrapv1.WaitingForNodeReason:
		return StageWaitingForHost, inPool.LastTransitionTime.Time
	case IsAsFound(config) && inPool != nil:
		return StageAsFound, inPool.LastTransitionTime.Time
	case IsAsFound(config):
		return StageAsFound, config.CreationTimestamp.Time
	case inPool != nil && inPool.Status == metav1.ConditionTrue:
		return StageReady, inPool.LastTransitionTime.Time
	case IsReleased(config) && IsNodeOutsidePool(config):
		return StageOutsidePool, inPool.LastTransitionTime.Time
	case inPool != nil && IsReleased(config):
		return StageNotReady, inPool.LastTransitionTime.Time
	}
	if IsRequestPending(config) {
		return StagePreparing, FirstRequestTime(config)
	}
	if IsWithdrawn(config) {
		return StageWaitingForHost, conditions.Get(config, bootstrapv1.BootPreparedCondition).LastTransitionTime.Time
	}
	taken := Moments(config)
	last := taken[len(taken)-1]
	stage := StageJoining
	for _, end := range stageEndSteps {
		if rank(end.by) > rank(last.Step) {
			stage = end.stage
			break
		}
	}
	switch {
	case config.Spec.IsInline() && last.Step == StepBootPrepared:
		stage = StageJoining // an inline data Secret needs no config server
	case last.Step == StepCreated && isDataSecretUnnecessary(config):
		stage = StageProvisioning // its host is known, and needs no data Secret
	}
	return stage, last.Time
}

// rank returns the position of a step in the order of steps.
func rank(step Step) int {
	return slices.Index([]Step{
		StepCreated, StepDataSecretCreated, StepHostChosen, StepBootRequested, StepBootPrepared, StepConfigServed,
		StepKubeletRegistered, StepNodeReady, StepTokenRevoked,
	}, step)
}

// StageDurations returns how long each stage of a completed boot took. The sum is the time from the creation to the
// last step. If the step that ends a stage is missing, its time counts for the next stage. A step that was repeated
// after the next step, such as when the data Secret is restored while the host boots, counts as taken before the next
// step.
func StageDurations(config *bootstrapv1.PoolbootConfig) map[Stage]time.Duration {
	at := map[Step]time.Time{}
	for _, moment := range Moments(config) {
		at[moment.Step] = moment.Time
	}
	created := at[StepCreated]
	var limit time.Time
	for _, end := range slices.Backward(stageEndSteps) {
		to, taken := at[end.by]
		switch {
		case !taken:
			continue
		case to.Before(created): // recorded with another clock
			to = created
		case !limit.IsZero() && to.After(limit):
			to = limit
		}
		at[end.by], limit = to, to
	}
	took := map[Stage]time.Duration{}
	from := created
	for _, end := range stageEndSteps {
		if to, taken := at[end.by]; taken {
			took[end.stage], from = to.Sub(from), to
		}
	}
	return took
}
