package update

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/remediation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch;patch

// stages are the stages in the order of an update.
var stages = []bootstrapv1.UpdateStage{
	bootstrapv1.UpdateStarting, bootstrapv1.UpdateDraining, bootstrapv1.UpdateApplying, bootstrapv1.UpdateRebooting, bootstrapv1.UpdateVerifying,
}

// setStage records which stage the update of a host has reached, and since when. In one update, a stage never returns
// to an earlier one, as in an undo: otherwise, a host could begin the time of a stage again for as long as it likes.
func (h *host) setStage(now time.Time) {
	update, stage := &h.Config.Status.Update, h.Stage()
	switch {
	case stage == "":
		update.Stage, update.StageTime = "", nil
	case update.StageTime == nil || isFuture(update.StageTime.Time, now) || slices.Index(stages, stage) > slices.Index(stages, update.Stage):
		update.Stage, update.StageTime = stage, &metav1.Time{Time: now}
	}
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
func (r *Reconciler) reportFailing(ctx context.Context, h *host, in surroundings, failed error) error {
	h.setStage(r.now())
	var err error
	if h.Machine != nil {
		isPaused, _ := h.remediation(in.pool, r.now())
		err = r.setRemediation(ctx, h.Machine, isPaused)
	}
	old := conditions.Get(h.Config, bootstrapv1.UpdatedCondition)
	if r.lasts(h.Config.UID, failed) && (old == nil || outlook.Of(old.Reason) != outlook.NeedsPerson) {
		conditions.Set(h.Config, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateFailingReason, "what Node %s needs to follow its pool fails, and is retried: %s",
			h.Config.Status.NodeRef.Name, rollout.Clean(failed.Error(), agentv1.MaxReason)))
	}
	patched := status.Patch(ctx, r.Client, h.stored, h.Config)
	if patched == nil {
		r.written.Record(h.Config)
		r.reportChanges(h.stored, h.Config)
	}
	return errors.Join(err, patched)
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

// endPause ends the pause of health checks that this package began for a host which it no longer follows.
func (r *Reconciler) endPause(ctx context.Context, config *bootstrapv1.PoolbootConfig) error {
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if err != nil || machine == nil {
		return client.IgnoreNotFound(err)
	}
	return r.setRemediation(ctx, machine, false)
}

// setRemediation pauses the health checks of a Machine, or ends the pause.
func (r *Reconciler) setRemediation(ctx context.Context, machine *clusterv1.Machine, isPaused bool) error {
	written, err := remediation.Pause(ctx, r.Client, machine, isPaused)
	if written != nil {
		r.written.Record(written)
	}
	return err
}
