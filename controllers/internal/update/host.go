package update

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// host is a host that has joined.
type host struct {
	*rollout.Host
	// target is the revision of what the host should run according to its pool, or "" if that is not known.
	target string
	// scope is that of the reconcile of the host. It is nil in the reconcile of a pool.
	scope *scope.Scope
}

// flush writes what was changed in the record, before something else is done.
func (h *host) flush(ctx context.Context) error {
	err := h.scope.Flush(ctx)
	h.Config = h.scope.Config
	return err
}

// answerDeadline is how long the agent of a host may take to report something about what the host was told. It can
// download for as long as that before.
const answerDeadline = 10 * time.Minute

// observe records why the host is unavailable, and what the agent reports: its version, the revision that the host has,
// and since when the agent does not answer.
func (h *host) observe(now time.Time) {
	update := &h.Config.Status.Update
	update.UnavailableReason = h.UnavailableReason()
	if h.Node == nil || !h.HasAgent() {
		return
	}
	update.AgentVersion = h.Report.Version
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

// answer returns whether the agent should have answered before, or else in which time it should, 0 if it has.
func (h *host) answer(now time.Time) (isLate bool, left time.Duration) {
	since := h.Config.Status.Update.UnansweredTime
	if since == nil {
		return false, 0
	}
	left = answerDeadline - now.Sub(since.Time)
	return left <= 0, max(left, 0)
}
