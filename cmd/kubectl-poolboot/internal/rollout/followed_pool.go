package rollout

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// followedPool is a pool that a watch waits for.
type followedPool struct {
	*poolv1.MachineConfigPool
	// hasRendered is true once the pool has rendered what existed when the command started. Before that, its hosts say
	// nothing about it.
	hasRendered bool
	// target is what the pool handed out then.
	target string
	// told is what was seen of each host when it or its pool changed to what they are to run now. left is for how long
	// a failure from before that does not count, 0 without one.
	told map[string]toldHost
	left time.Duration
}

// toldHost is a host when what it is to run changed: its own revision, or what its pool has observed. time is 0 if that
// was before the command started, and the host had answered.
type toldHost struct {
	revision, message string
	time              time.Time
}

// answerPatience is how long what failed before a host was to run something else does not end a watch. The manager and
// an agent that runs answer within seconds.
var answerPatience = time.Minute

// exitSuperseded is the exit code of a watch if the pool hands out another config than the one that it waits for.
const exitSuperseded = 3

// errComplete ends a watch: all hosts are updated.
var errComplete = errors.New("complete")

// end returns why a watch of the pool is over: errComplete, or why its rollout does not go on. It returns nil while it
// goes on.
func (p *followedPool) end(s summary) error {
	if p.left = 0; !p.hasRendered || p.isBehind() {
		return nil
	}
	switch err := s.failureOf(p.isStuck); {
	case err != nil:
		return err
	case s.isComplete() && int(ptr.Deref(p.Status.UpdatedHostCount, int32(len(s.hosts)))) >= len(s.hosts): // the pool shows it, too
		return errComplete
	case p.Status.Configuration.Name != p.target:
		return exec.CodeExitError{Code: exitSuperseded, Err: fmt.Errorf("%s hands out %s in place of %s: run the command again to follow it",
			describe(p.MachineConfigPool), p.Status.Configuration.Name, p.target)}
	case p.Spec.IsPaused() && !s.isUpdating(), s.isDoneButSkipped():
		return s.held()
	}
	return nil
}

// isBehind reports whether the status of the pool does not describe its spec yet.
func (p *followedPool) isBehind() bool { return p.Status.ObservedGeneration < p.Generation }

// observe notes when a host or its pool changes to something else.
func (p *followedPool) observe(h HostStatus) {
	told := toldHost{revision: fmt.Sprintln(h.told, p.Status.ObservedGeneration, p.Status.InputsHash), message: h.Message}
	last, known := p.told[h.PoolbootConfig]
	switch n := len(p.Status.History); {
	case known && last.revision == told.revision:
		return
	case known || h.isUnanswered:
		told.time = time.Now()
	case n > 0:
		told.time = p.Status.History[n-1].StartTime.Time
	}
	p.told[h.PoolbootConfig] = told
}

// isStuck reports whether a host needs a user to act before it is updated. What failed before the host is to run
// something else can work with that.
func (p *followedPool) isStuck(h HostStatus) bool {
	if !h.IsWrong || h.State == bootstrapv1.UnitsFailingReason && !h.runsDesired() {
		return false
	}
	told := p.told[h.PoolbootConfig]
	left := answerPatience - time.Since(told.time)
	if left <= 0 || h.Message != told.message && !h.isUnanswered {
		return true
	}
	if p.left == 0 || left < p.left {
		p.left = left
	}
	return false
}
