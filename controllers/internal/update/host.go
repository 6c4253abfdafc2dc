package update

import (
	"context"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// host is a host that has joined.
type host struct {
	*rollout.Host
	// target is the revision of what the host should run according to its pool, or "" if that is not known.
	target string
	// silentFor is for how long it has been known that the agent does not run.
	silentFor time.Duration
	// origins says which MachineConfigs brought the entries that a text of the agent names, or "". It can be nil.
	origins func(text string) string
	// notPreviewed is why the pool of a host that is as it was found has nothing to compare it with, or "".
	notPreviewed string
	// givenUp describes a drain that was given up in this reconcile, or "".
	givenUp string
	// lateDrain describes what remains of a drain that takes longer than the pool allows, or "".
	lateDrain string
	// bmh is the BareMetalHost of a host that is updated, as Metal3 reports it. It is nil for other hosts.
	bmh *bmov1alpha1.BareMetalHost
	// stages are how long the update of the host was in each stage, nil if it is in none.
	stages []bootstrapv1.UpdateStageDuration
	// scope is that of the reconcile of the host. It is nil in the reconcile of a pool.
	scope *scope.Scope
}

// hold returns why the host begins no update now, as far as its pool says.
func (h *host) hold(in poolContext) rollout.HostHold { return in.hold.Of(h.NodeName()) }

// flush writes what was changed in the record, before something else is done.
func (h *host) flush(ctx context.Context) error {
	err := h.scope.Flush(ctx)
	h.Config = h.scope.Config
	return err
}

// answerDeadline is how long the agent of a host may take to report something about what the host was told. It can
// download for as long as that before.
const answerDeadline = 10 * time.Minute

// silenceDeadline is how long an agent may not run before that is reported: systemd starts it again after 10 seconds.
const silenceDeadline = 30 * time.Second

// observe records why the host is unavailable, and what the agent reports: its version, the revision that the host has,
// and since when the agent does not answer.
func (h *host) observe(now time.Time) {
	update := &h.Config.Status.Update
	update.UnavailableReason = h.UnavailableReason()
	if h.Node == nil || !h.HasAgent() {
		return
	}
	update.AgentVersion, update.UnsupportedChanges, update.OutdatedDisks = h.Report.Version, h.Report.Unsupported, h.Report.OutdatedDisks
	update.RebootRequired = h.Report.RebootRequired
	if h.Report.Current != "" {
		update.RunningRevision = h.Report.Current
	}
	switch isUnanswered := h.Told() != "" && h.Told() == h.Desired() && h.Progress() == rollout.Unknown &&
		!h.IsOnlyClaimed() && h.Report.NotUnderstood == ""; {
	case !isUnanswered:
		update.UnansweredTime = nil
	case update.UnansweredTime == nil || isFuture(update.UnansweredTime.Time, now):
		update.UnansweredTime = &metav1.Time{Time: now}
	}
}

// observeDrain records since when the drain of the Node takes longer than the pool allows.
func (h *host) observeDrain(now time.Time) {
	switch update := &h.Config.Status.Update; {
	case !h.mustDrain():
		update.DrainTimedOutTime = nil
	case h.lateDrain != "" && update.DrainTimedOutTime == nil:
		update.DrainTimedOutTime = &metav1.Time{Time: now}
	}
}

// isFuture reports whether a time was recorded by a clock that was ahead. It is recorded again, because what depends on
// it would last for as long as the clock was ahead.
func isFuture(recorded, now time.Time) bool { return recorded.Sub(now) > rollout.MaxSkew }

// start returns whether the agent of a host that has just joined should have reported before, or else in which time it
// should.
func (h *host) start(now time.Time) (isLate bool, left time.Duration) {
	ready := h.Config.Status.Boot.NodeReadyTime
	if ready == nil {
		return false, 0
	}
	left = answerDeadline - now.Sub(ready.Time)
	return left <= 0, max(left, 0)
}

// answer returns whether the agent should have answered or started before, or else in which time it should, 0 if it
// has. What is reported stays so after a restart of the manager, which forgets since when an agent does not run.
func (h *host) answer(now time.Time) (isLate bool, left time.Duration) {
	switch since := h.Config.Status.Update.UnansweredTime; {
	case h.Report.Silence != "" && conditions.GetReason(h.Config, bootstrapv1.UpdatedCondition) == bootstrapv1.AgentNotAnsweringReason:
	case h.Report.Silence != "":
		left = silenceDeadline - h.silentFor
	case since == nil:
		return false, 0
	case h.isDownloading():
		left = rollout.StagingPatience - now.Sub(since.Time)
	default:
		left = answerDeadline - now.Sub(since.Time)
	}
	return left <= 0, max(left, 0)
}

// isDownloading reports whether the agent says that it downloads what the host was told to change to.
func (h *host) isDownloading() bool { return h.WhyNotStaged(h.Told()) == agentv1.StagingDownloads }

// progressInterval is how long a stage of an update lasts before the record shows it: many hosts pass several stages
// within seconds, and each record is a write in the management cluster.
const progressInterval = 5 * time.Second

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
	bootstrapv1.UpdateWaitingReason, bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason, bootstrapv1.UpdateRebootingReason,
	bootstrapv1.UpdateApplyingFirmwareReason, bootstrapv1.UpdateVerifyingReason,
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
	if count := len(update.History); count > 0 && update.History[count-1].CompletionTime == nil {
		update.History[count-1].Stages = nil
	}
	conditions.Delete(without, bootstrapv1.UpdatedCondition)
	conditions.Delete(without, clusterv1.ReadyCondition)
	if conditions.IsTrue(without, bootstrapv1.NodeInPoolCondition) || conditions.GetReason(without, bootstrapv1.NodeInPoolCondition) == bootstrapv1.NodeNotReadyReason {
		conditions.Delete(without, bootstrapv1.NodeInPoolCondition)
	}
	return without.Status
}

const (
	// maxStreaks limits the hosts and pools for which it is remembered since when something fails.
	maxStreaks = 20000
	// failureTTL is longer than the time between two tries of what fails.
	failureTTL = time.Hour
)

// streaks remembers since when something fails each time.
type streaks struct {
	known *lru.Cache
	ttl   time.Duration
}

// streak is when something failed first and last.
type streak struct{ first, last time.Time }

// newStreaks returns a memory in which a streak ends if nothing fails for the ttl.
func newStreaks(ttl time.Duration) streaks { return streaks{lru.New(maxStreaks), ttl} }

// add adds a failure, and returns for how long the streak has lasted.
func (s streaks) add(key any, now time.Time) time.Duration {
	current := streak{first: now, last: now}
	if known, ok := s.known.Get(key); ok && now.Sub(known.(streak).last) <= s.ttl {
		current.first = known.(streak).first
	}
	s.known.Add(key, current)
	return now.Sub(current.first)
}

// end ends a streak.
func (s streaks) end(key any) { s.known.Remove(key) }
