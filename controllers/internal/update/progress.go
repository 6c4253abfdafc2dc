package update

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// progressInterval is how long a stage of an update lasts before the record shows it: many hosts pass several stages
// within seconds, and each record is a write in the management cluster.
const progressInterval = 15 * time.Second

// progressWait returns how long to wait before a change of a record is written, or 0 if it is written now. What waits
// is how far an update is that has begun, no longer than an interval after the last record of that. Beginnings, ends,
// and what needs a person, are written at once.
func progressWait(before, after *bootstrapv1.PoolbootConfig, interval time.Duration, now time.Time) time.Duration {
	since := before.Status.Update.StageTime
	if interval == 0 || since == nil || !isInProgress(before) || !isInProgress(after) || isFuture(since.Time, now) ||
		!equality.Semantic.DeepEqual(withoutProgress(before), withoutProgress(after)) {
		return 0
	}
	return max(interval-now.Sub(since.Time), 0)
}

// inProgress are the reasons of the condition Updated in an update that goes on.
var inProgress = []string{
	bootstrapv1.UpdateWaitingReason, bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason, bootstrapv1.UpdateRebootingReason, bootstrapv1.UpdateVerifyingReason,
}

// isInProgress reports whether the update of a host goes on.
func isInProgress(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.Update.Stage != "" && slices.Contains(inProgress, conditions.GetReason(config, bootstrapv1.UpdatedCondition))
}

// withoutProgress returns a status without what an update changes while it goes on. Its Node is not Ready for some
// time.
func withoutProgress(config *bootstrapv1.PoolbootConfig) bootstrapv1.PoolbootConfigStatus {
	without := &bootstrapv1.PoolbootConfig{Status: *config.Status.DeepCopy()}
	update := &without.Status.Update
	update.Stage, update.StageTime, update.UnansweredTime, update.UnavailableReason = "", nil, nil, ""
	conditions.Delete(without, bootstrapv1.UpdatedCondition)
	conditions.Delete(without, clusterv1.ReadyCondition)
	if conditions.IsTrue(without, bootstrapv1.NodeInPoolCondition) || conditions.GetReason(without, bootstrapv1.NodeInPoolCondition) == bootstrapv1.NodeNotReadyReason {
		conditions.Delete(without, bootstrapv1.NodeInPoolCondition)
	}
	return without.Status
}
