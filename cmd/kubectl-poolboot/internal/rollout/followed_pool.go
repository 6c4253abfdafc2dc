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
	// told is what was seen of each host when it was told what to run now. left is for how long a failure from before
	// that does not count, 0 without one.
	told map[string]toldHost
	left time.Duration
}

// toldHost is a host when it was told what to run. time is 0 for one that had answered before the command started.
type toldHost struct {
	revision, message string
	time              time.Time
}

// answerPatience is how long what failed before a host was told to run something else does not end a watch. The agent
// answers within seconds if it runs.
var answerPatience = time.Minute

// exitSuperseded is the exit code of a watch if the pool hands out another config than the one that it waits for.
const exitSuperseded = 3

// errComplete ends a watch: all hosts are updated.
var errComplete = errors.New("complete")

// end returns why a watch of the pool is over: errComplete, or why its rollout does not go on. It returns nil while it
// goes on.
func (p *followedPool) end(s summary) error {
	if p.left = 0; !p.hasRendered {
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
	case p.Spec.IsPaused() && !s.isUpdating():
		return s.held()
	}
	return nil
}

// observe notes when a host is told to run something else.
func (p *followedPool) observe(h HostStatus) {
	last, known := p.told[h.PoolbootConfig]
	if known && last.revision == h.told {
		return
	}
	told := toldHost{revision: h.told, message: h.Message}
	if known || h.isUnanswered {
		told.time = time.Now()
	}
	p.told[h.PoolbootConfig] = told
}

// isStuck reports whether a host needs a user to act before it is updated. A Node that is not Ready can become Ready,
// and what failed before the host is told to run something else can work with that.
func (p *followedPool) isStuck(h HostStatus) bool {
	if !h.IsWrong || h.State == bootstrapv1.NodeNotReadyReason || h.State == bootstrapv1.UnitsFailingReason && !h.runsDesired() {
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
