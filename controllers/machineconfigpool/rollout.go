package machineconfigpool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// phase is how far a running host is that follows its pool and runs another configuration.
type phase string

const (
	waits    phase = "waits"    // for other hosts, a gate or a pause
	updating phase = "updating" // it is drained, changed, rebooted or verified
	stopped  phase = "stopped"  // its update failed, or is not possible
)

// phaseOf returns the phase by the condition that the host controller writes. A host that only differs from what it
// runs waits, as the others do: its next update can correct it.
func phaseOf(c *bootstrapv1.PoolbootConfig) phase {
	condition := conditions.Get(c, bootstrapv1.UpdatedCondition)
	if condition == nil {
		return waits
	}
	switch condition.Reason {
	case bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason, bootstrapv1.UpdateRebootingReason, bootstrapv1.UpdateVerifyingReason,
		bootstrapv1.UpdateApplyingFirmwareReason, bootstrapv1.FirmwareFailedReason, bootstrapv1.UpdateOverdueReason:
		return updating
	case bootstrapv1.UpdateWaitingReason, bootstrapv1.UpdateFailingReason, bootstrapv1.UnitsFailingReason:
		if c.Status.Update.Stage != "" { // its agent was told, or something fails that the update needs
			return updating
		}
	}
	if !runsDesired(c) && (condition.Reason == bootstrapv1.UpdateDegradedReason || condition.Reason == bootstrapv1.UpdateUnreconcilableReason || slices.Contains(noAnswer, condition.Reason)) {
		return stopped
	}
	return waits
}

// noAnswer are the reasons of the condition Updated of a host that begins no update because of its agent.
var noAnswer = []string{bootstrapv1.AgentNotAnsweringReason, bootstrapv1.CertificateNotAcceptedReason, bootstrapv1.ReportNotUnderstoodReason}

// isChanging reports whether a running host is to be changed, is being changed, or could not be, also if its rendered
// config stays the same: then something in the part of the machine changes, such as flags of the kubelet. A host that
// only differs from what it runs is not changing, and neither is one that waits for labels of a pool.
func isChanging(c *bootstrapv1.PoolbootConfig) bool {
	condition := conditions.Get(c, bootstrapv1.UpdatedCondition)
	if condition == nil || condition.Status != metav1.ConditionFalse || c.Status.Update.RunningRevision == "" {
		return false
	}
	switch condition.Reason {
	case bootstrapv1.UpdateWaitingReason, bootstrapv1.UpdateFailingReason:
		return !record.IsNodeOutsidePool(c)
	case bootstrapv1.UnitsFailingReason: // it waits, or is done
		return !record.IsNodeOutsidePool(c) && !runsDesired(c)
	}
	return phaseOf(c) != waits && !runsDesired(c)
}

// runsDesired reports whether a host runs what it was told to run.
func runsDesired(c *bootstrapv1.PoolbootConfig) bool {
	return c.Status.Update.RunningRevision != "" && c.Status.Update.RunningRevision == c.Status.Update.DesiredRevision
}

// failed returns the number of running hosts whose update or whose units failed.
func (n counts) failed() int { return len(n.stopped) + len(n.failing) }

// following returns the number of running hosts that run another configuration and change to that of the pool, now or
// when they are not skipped any more.
func (n counts) following() int {
	return len(n.waiting) + len(n.updating) + len(n.stopped) + len(n.skipped)
}

// isDoneButSkipped reports whether all hosts are updated and ready, but for some that are skipped. Whether the Nodes of
// these are Ready does not matter.
func (n counts) isDoneButSkipped() bool {
	return len(n.skipped) > 0 && n.updated+int32(len(n.skipped)) == n.total && n.ready == n.updated
}

// runningOther returns the number of running hosts that follow their pool and run another configuration than this one.
func (n counts) runningOther(configuration string) (count int) {
	for is, names := range n.running {
		if !pool.HasSameContent(is.configuration, configuration) {
			count += len(names)
		}
	}
	return count
}

// pendingReason returns the reason of Updated and Updating while Machines are not updated. The rollout has stopped if
// no host is updated, and none is next: either there is none, or those whose update or units failed leave no room for
// it.
func (s *scope) pendingReason(n counts) string {
	limit, err := rollout.MaxUnavailable(s.pool.Spec.MaxUnavailable, int(n.total))
	isBlocked := err == nil && len(n.blocking(s.pool, limit)) > 0
	isStuck := s.isStuck(n, isBlocked, time.Now())
	switch {
	case len(n.updating) > 0:
		return poolv1.HostsUpdatingReason
	case n.isDoneButSkipped():
		return poolv1.HostsSkippedReason
	case len(n.stopped) > 0 && (err != nil || len(n.waiting) == 0), len(n.waiting) > 0 && n.failed() > 0 && n.failed() >= limit:
		return poolv1.RolloutStoppedReason
	case isBlocked:
		return poolv1.RolloutBlockedReason
	case isStuck, n.silentWaiting > 0 && n.silentWaiting == len(n.waiting):
		return poolv1.RolloutStoppedReason
	}
	return poolv1.HostsPendingReason
}

// stuckPatience is how long no host of a pool with failure domains is updated, while some wait and others could not be
// updated, before the rollout counts as stopped.
const stuckPatience = time.Minute

// isStuck reports whether the rollout of a pool with failure domains has stopped because of hosts that could not be
// updated: hosts of other domains wait for them. Which domains these are is in their Nodes. So this is decided by time:
// also between two hosts of one domain, none is updated. A host that was told to begin has a stage.
func (s *scope) isStuck(n counts, isBlocked bool, now time.Time) bool {
	hasBegun := func(c bootstrapv1.PoolbootConfig) bool { return c.Status.Update.Stage != "" }
	if s.pool.Spec.Updates.FailureDomainLabel == "" || n.failed() == 0 || len(n.waiting) == 0 || isBlocked ||
		meta.IsStatusConditionFalse(s.pool.Status.Conditions, poolv1.UpdateGatesOpenCondition) ||
		rollout.HoldOf(s.pool, now).Why != "" || slices.ContainsFunc(s.machines, hasBegun) {
		s.cache.stuckSince = time.Time{}
		return false
	}
	if hasReason(s.pool, poolv1.RolloutStoppedReason) {
		return true
	}
	if s.cache.stuckSince.IsZero() {
		s.cache.stuckSince = now
	}
	left := stuckPatience - now.Sub(s.cache.stuckSince)
	s.reconcileIn(left)
	return left <= 0
}

// blocking returns the hosts because of which no other host begins an update: they are unavailable, and take all
// places, or all failure domains but one. Which domains these are is in their Nodes, so in a pool with failure domains,
// each of them counts while no host is updated.
func (n counts) blocking(p *poolv1.MachineConfigPool, limit int) []string {
	isFull := len(n.notInPool)+len(n.held)+n.failed()+int(n.notReplaced) >= limit || len(n.waiting) == n.heldWaiting || p.Spec.Updates.FailureDomainLabel != ""
	if len(n.waiting) == 0 || len(n.updating) > 0 || !isFull || rollout.HoldOf(p, time.Now()).Why != "" {
		return nil
	}
	return n.unavailableNames()
}

// unavailableNames returns the names of the hosts that have joined and are unavailable, and how many are gone.
func (n counts) unavailableNames() []string {
	names := slices.Concat(n.notInPool, n.held)
	if n.notReplaced > 0 {
		names = append(names, fmt.Sprintf("%d that are gone and whose replacements have not joined", n.notReplaced))
	}
	return names
}

// blockedMessage names the hosts that block a rollout.
func (n counts) blockedMessage() string {
	next := "correct these hosts, or replace their Machines"
	switch {
	case len(n.held) > 0:
		next = "uncordon those that are cordoned, wait until Cluster API has completed what it does to the others, or correct them"
	case len(n.notInPool) == 0:
		next = "the rollout goes on when these have joined, or by itself after a minute if nothing replaces those that are gone"
	}
	return fmt.Sprintf("no host begins its update while these are unavailable (%s): %s; ", excerpt.Names(maxNames, n.unavailableNames()), next)
}

// setRollout sets when the last rollout began and ended. It begins when the first host is updated to what the pool
// hands out, and ends when no running host has to change any more, and the units of none fail. A rollout of something
// else replaces it.
func (s *scope) setRollout(n counts, now metav1.Time) {
	last, name := &s.pool.Status.Rollout, s.pool.Status.Configuration.Name
	isOver := last.StartTime == nil || last.CompletionTime != nil
	switch {
	case name == "":
	case len(n.updating) > 0 && (isOver || last.Configuration != name):
		*last = poolv1.PoolRollout{Configuration: name, StartTime: &now}
	case n.following() == 0 && len(n.failing) == 0 && !isOver:
		last.Configuration, last.CompletionTime = name, &now
	}
}

// reportRollout creates the events and counts the duration when a rollout begins, stops at hosts whose update failed,
// or ends.
func (r *Reconciler) reportRollout(before *poolv1.MachineConfigPool, s *scope) {
	old, last := before.Status.Rollout, s.pool.Status.Rollout
	event := func(kind, reason, format string, args ...any) {
		r.Recorder.Eventf(s.pool, nil, kind, reason, "Rollout", format, args...)
	}
	isNew := !last.StartTime.Equal(old.StartTime) || last.Configuration != old.Configuration // times have whole seconds
	if last.StartTime != nil && last.CompletionTime == nil && isNew {
		if changing := s.counted.runningOther(last.Configuration); changing > 0 {
			event(corev1.EventTypeNormal, poolv1.EventRolloutStarted, "%d of %d hosts change to %s", changing, s.counted.total, last.Configuration)
		} else {
			event(corev1.EventTypeNormal, poolv1.EventRolloutStarted, "%d of %d hosts run %s, and change to another assignment of it",
				s.counted.following(), s.counted.total, last.Configuration)
		}
	}
	if wasStopped := hasReason(before, poolv1.RolloutStoppedReason); !wasStopped && hasReason(s.pool, poolv1.RolloutStoppedReason) {
		event(corev1.EventTypeWarning, poolv1.RolloutStoppedReason, "%d of %d hosts cannot be updated to %s or have units that fail, and %d wait: see the condition %s of the pool",
			s.counted.failed()+s.counted.silentWaiting, s.counted.total, cmp.Or(last.Configuration, s.pool.Status.Configuration.Name), len(s.counted.waiting)-s.counted.silentWaiting, poolv1.NodeDegradedCondition)
	}
	if last.CompletionTime != nil && !last.CompletionTime.Equal(old.CompletionTime) {
		duration := last.CompletionTime.Sub(last.StartTime.Time)
		metrics.RolloutCompleted(duration)
		event(corev1.EventTypeNormal, poolv1.EventRolloutCompleted, "%d of %d hosts run %s, after %s",
			s.counted.updated, s.counted.total, last.Configuration, duration.Round(time.Second))
	}
}

// hasReason reports whether the condition Updating of a pool has a reason.
func hasReason(p *poolv1.MachineConfigPool, reason string) bool {
	return ptr.Deref(meta.FindStatusCondition(p.Status.Conditions, poolv1.UpdatingCondition), metav1.Condition{}).Reason == reason
}

// addRollout adds to a message what the running hosts do that change their configuration, and where to see more.
func (n counts) addRollout(add func(names []string, problem, next string), see string) {
	add(n.updating, "are being updated", see)
	add(n.stopped, "cannot be updated", see+", and correct the configuration or the host")
	add(n.failing, "have units that fail", "each takes a place of spec.maxUnavailable: correct the MachineConfig, which these hosts get first, or the host")
	add(n.retrying, "fail to follow the pool, and retry it", see)
	waiting := sets.New(n.waiting...).Delete(n.retrying...)
	add(waiting.UnsortedList(), "wait for their update", see)
}
