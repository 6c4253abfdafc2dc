package update

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// restoreHistory restores the last updates of a host after clusterctl move, which drops the status.
func restoreHistory(config *bootstrapv1.PoolbootConfig) {
	if update := &config.Status.Update; len(update.History) == 0 {
		update.History = record.DecodeUpdates(config.Annotations[bootstrapv1.UpdateHistoryAnnotation])
	}
}

// keepHistory repeats the updates of a host that have ended where clusterctl move keeps them. It is written once for
// each update, after the record.
func (r *Updates) keepHistory(ctx context.Context, h *host) error {
	config := h.scope.Before()
	value := record.EncodeUpdates(config.Status.Update.History)
	if value == "" || value == config.Annotations[bootstrapv1.UpdateHistoryAnnotation] {
		return nil
	}
	return h.scope.PatchMetadata(ctx, func(config *bootstrapv1.PoolbootConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.UpdateHistoryAnnotation, value)
	})
}

// stageClock is how long an update has been in its stages. The record of the host has only those that last.
type stageClock struct {
	// began identifies the update.
	began time.Time
	// stage is the one that the update is in since a time, "" once it has ended.
	stage bootstrapv1.UpdateStage
	since time.Time
	// spent is the time in each stage before that one.
	spent map[bootstrapv1.UpdateStage]time.Duration
}

// clockStages returns how long the update of a host, which the history has as the last one, was in the stages before
// the present one. It returns nil if the host is in no update. It must see every stage: what a manager did not see
// counts for the stage before.
func (r *Updates) clockStages(h *host, now time.Time) (stagesBefore []bootstrapv1.UpdateStageDuration) {
	update := &h.Config.Status.Update
	count := len(update.History)
	if count == 0 || update.History[count-1].CompletionTime != nil {
		r.stageClocks.Remove(h.Config.UID)
		return nil
	}
	last, recorded := update.History[count-1], &h.scope.Before().Status.Update
	known, _ := r.stageClocks.Get(h.Config.UID)
	clock, ok := known.(stageClock)
	if !ok || !clock.began.Equal(last.StartTime.Time) { // it has just begun, or the manager has
		clock = stageClock{began: last.StartTime.Time, stage: recorded.Stage, since: ptr.Deref(recorded.StageTime, *last.StartTime).Time,
			spent: map[bootstrapv1.UpdateStage]time.Duration{}}
		for _, s := range last.Stages {
			clock.spent[s.Stage] = time.Duration(s.Seconds) * time.Second
		}
	}
	if update.Stage != clock.stage {
		clock.spent[clock.stage] += max(now.Sub(clock.since), 0)
		clock.stage, clock.since = update.Stage, now
	}
	r.stageClocks.Add(h.Config.UID, clock)
	stagesBefore = []bootstrapv1.UpdateStageDuration{}
	for _, stage := range stages {
		if seconds := int32(clock.spent[stage].Round(time.Second) / time.Second); seconds > 0 {
			stagesBefore = append(stagesBefore, bootstrapv1.UpdateStageDuration{Stage: stage, Seconds: seconds})
		}
	}
	return stagesBefore
}
