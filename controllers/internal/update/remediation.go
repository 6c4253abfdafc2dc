package update

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/remediation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch;patch

// stages are the stages in the order of an update.
var stages = []bootstrapv1.UpdateStage{
	bootstrapv1.UpdateStarting, bootstrapv1.UpdateDraining, bootstrapv1.UpdateApplying, bootstrapv1.UpdateRebooting, bootstrapv1.UpdateVerifying,
}

// setStage records which stage the update of a host has reached, and since when. In one update, a stage never returns
// to an earlier one, as in an undo: otherwise, a host could begin the time of a stage again for as long as it likes.
// Only Metal3 can, when it has applied firmware.
func (h *host) setStage(now time.Time) {
	update, stage := &h.Config.Status.Update, h.Stage()
	switch {
	case stage == "":
		update.Stage, update.StageTime = "", nil
	case update.StageTime == nil || isFuture(update.StageTime.Time, now) || slices.Index(stages, stage) > slices.Index(stages, update.Stage),
		stage == update.Stage && rollout.IsFirmwareApplied(h.Config) && !h.isFirmwareApplied(): // the host boots only now
		update.Stage, update.StageTime = stage, &metav1.Time{Time: now}
	}
}

// keepFailure records what fails in the update of a host that is about to be told to run another configuration.
func (h *host) keepFailure() {
	count, history := len(h.Config.Status.Update.History), h.Config.Status.Update.History
	if count == 0 || history[count-1].CompletionTime != nil || h.Progress() != rollout.InUpdate {
		return
	}
	switch {
	case h.Report.State == agentv1.Verifying:
		history[count-1].Message = rollout.Clean(cmp.Or(h.Report.Reason, h.Report.DescribeFailingUnits()), bootstrapv1.MaxUpdateMessage)
	case h.isUndoing():
		history[count-1].Message = rollout.Clean(h.Report.Reason, bootstrapv1.MaxUpdateMessage)
	}
}

// setHistory records when an update of a host begins, how long its stages take, why it reboots fully although its pool
// prefers another method, and when and how it ends, and by what. Units can fail after its end, too.
func (h *host) setHistory(now time.Time) {
	update, failing := &h.Config.Status.Update, h.Report.DescribeFailingUnits()
	if count := len(update.History); count > 0 && update.History[count-1].CompletionTime == nil {
		last, result := &update.History[count-1], h.result(h.Config)
		if h.stages != nil {
			last.Stages = h.stages
		}
		if at := strings.Index(h.Report.Reason, agentv1.FullRebootInsteadOf); at >= 0 && h.Progress() == rollout.InUpdate {
			last.Message = rollout.Clean(h.Report.Reason[at:], bootstrapv1.MaxUpdateMessage)
		}
		switch {
		case last.Configuration != update.Desired.Name:
			result = bootstrapv1.UpdateResultSuperseded
		case result == "":
			return
		case result != bootstrapv1.UpdateResultDone:
			last.Message = rollout.Clean(h.withOrigins(cmp.Or(h.Report.Reason, h.Report.Drift)), bootstrapv1.MaxUpdateMessage)
		}
		last.CompletionTime, last.Result = &metav1.Time{Time: now}, result
		if h.Report.Target == h.Desired() && last.Configuration == update.Desired.Name {
			last.Effect = bootstrapv1.UpdateEffect(h.Report.Effect)
		}
	}
	if count := len(update.History); count > 0 && failing != "" && h.runsDesired() {
		if last := &update.History[count-1]; last.Configuration == update.Desired.Name && last.Result == bootstrapv1.UpdateResultDone {
			last.Result, last.Message = bootstrapv1.UpdateResultUnitsFailing, rollout.Clean("it was not undone: "+h.withOrigins(failing), bootstrapv1.MaxUpdateMessage)
		}
	}
	if update.Stage != "" {
		update.History = append(update.History, bootstrapv1.HostUpdate{Configuration: update.Desired.Name, StartTime: &metav1.Time{Time: now}})
		update.History = update.History[max(0, len(update.History)-bootstrapv1.MaxUpdateHistory):]
	}
}

// result returns how the update of a host has ended that is recorded in a config, or "" if it has not.
func (h *host) result(config *bootstrapv1.PoolbootConfig) bootstrapv1.UpdateResult {
	condition, update := conditions.Get(config, bootstrapv1.UpdatedCondition), &config.Status.Update
	switch {
	case condition == nil || update.Stage != "":
		return ""
	case h.Progress() == rollout.Failed: // the condition says so later if the Node can't be uncordoned now
		return bootstrapv1.UpdateResult(h.Report.State)
	case condition.Reason == bootstrapv1.UpdateDegradedReason:
		return bootstrapv1.UpdateResultDegraded
	case condition.Status != metav1.ConditionUnknown && update.RunningRevision == update.DesiredRevision:
		return bootstrapv1.UpdateResultDone
	}
	return ""
}

// remediation returns whether health checks of a host's Machine are paused because of an update, and when that must be
// decided again, or 0. They are paused only while the update can make the Node not Ready: a host that is not drained
// yet was not changed. A host that stays in a stage for too long is remediated like any other, whatever it reports.
func (h *host) remediation(p *poolv1.MachineConfigPool, now time.Time) (isPaused bool, again time.Duration) {
	update := &h.Config.Status.Update
	if h.Machine == nil || h.IsDeleting() || h.Node == nil || update.StageTime == nil ||
		update.Stage == bootstrapv1.UpdateDraining && h.Node.Annotations[agentv1.DrainedAnnotation] != h.Desired() {
		return false, 0
	}
	left := rollout.StageLeft(h.Config, rollout.StageDeadline(p), now)
	return left > 0, left
}

// overdue returns whether a host that is changed, reboots or is verified has done so for too long, or else when it will
// have, 0 for any other host. Then it needs a person, whatever it reports.
func (h *host) overdue(p *poolv1.MachineConfigPool, now time.Time) (isLate bool, left time.Duration) {
	if !rollout.IsInterrupted(h.Config) {
		return false, 0
	}
	left = rollout.StageLeft(h.Config, rollout.StageDeadline(p), now)
	return left == 0, left
}

// reportFailing reports that something fails that the update of a host needs: the API server of the workload cluster
// can refuse to drain or to uncordon a Node, also forever. So it also limits the pause of health checks.
// What needs a person stays in the condition.
func (r *Updates) reportFailing(ctx context.Context, h *host, in poolContext, failed error) error {
	h.setStage(r.now())
	var err error
	if h.Machine != nil {
		isPaused, _ := h.remediation(in.pool, r.now())
		h.Machine, err = r.setRemediation(ctx, h.Machine, isPaused)
	}
	old := conditions.Get(h.Config, bootstrapv1.UpdatedCondition)
	if r.lasts(h.Config.UID, failed) && (old == nil || outlook.Of(old.Reason) != outlook.NeedsPerson) {
		conditions.Set(h.Config, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateFailingReason, "what Node %s needs to follow its pool fails, and is retried: %s",
			h.Config.Status.NodeRef.Name, rollout.Clean(failed.Error(), agentv1.MaxReason)))
	}
	h.scope.Report(func(before, after *bootstrapv1.PoolbootConfig) { r.reportChanges(h, before, after) })
	return err
}

// unrecordedPatience returns how long the pause of health checks of a host lasts without a record, as just after
// clusterctl move: the host can be in the middle of its update. It returns 0 if the host is recorded, or was not moved
// a short time ago.
func unrecordedPatience(config *bootstrapv1.PoolbootConfig, now time.Time) time.Duration {
	if !rollout.IsUnrecorded(config) || capiannotations.HasPaused(config) {
		return 0
	}
	return max(rollout.StagePatience-now.Sub(config.CreationTimestamp.Time), 0)
}

// EndPause ends the pause of health checks that this package began for a host which it no longer follows. While the
// Cluster is paused, it does nothing.
func (r *Updates) EndPause(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
	if s.Machine == nil || s.Cluster == nil || ptr.Deref(s.Cluster.Spec.Paused, false) {
		return ctrl.Result{}, nil
	}
	if left := unrecordedPatience(s.Config, r.now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	written, err := remediation.End(ctx, r.Client, s.Machine, s.Config)
	if written != nil {
		r.written.Record(written)
	}
	return ctrl.Result{}, err
}

// setRemediation pauses the health checks of a Machine, or ends the pause. It returns the Machine as it is then.
func (r *Updates) setRemediation(ctx context.Context, machine *clusterv1.Machine, isPaused bool) (*clusterv1.Machine, error) {
	written, err := remediation.Pause(ctx, r.Client, machine, isPaused)
	if err != nil || written == nil {
		return machine, err
	}
	r.written.Record(written)
	return written, nil
}
