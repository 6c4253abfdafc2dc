package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

const (
	// approvalLife is how long the answer is good that Poolboot alone approves certificates.
	approvalLife = time.Minute
	// autoApprovedLife is how long the other answer is good, which somebody is to change.
	autoApprovedLife = 10 * time.Second
)

// Approval checks, before a join credential is made, that no workload cluster approves its certificate requests by
// itself. It keeps answers for a bounded time, so that a site of hosts that boot at once costs one question. The zero
// value is ready to use.
type Approval struct {
	// Clock is the clock that answers age by; nil is the real one.
	Clock clock.PassiveClock

	asking singleflight.Group

	mu      sync.Mutex
	answers map[types.UID]approvalAnswer
}

type approvalAnswer struct {
	until time.Time
	err   error
}

// Check returns join.CheckApproval's answer for the Cluster of this UID.
func (a *Approval) Check(ctx context.Context, w client.Client, cluster types.UID) error {
	if known, is := a.known(cluster); is {
		return known.err
	}
	_, err, _ := a.asking.Do(string(cluster), func() (any, error) {
		if known, is := a.known(cluster); is {
			return nil, known.err
		}
		err := join.CheckApproval(ctx, w)
		answer := approvalAnswer{until: a.now().Add(approvalLife), err: err}
		if _, allowed := errors.AsType[*join.AutoApprovedError](err); allowed {
			answer.until = a.now().Add(autoApprovedLife)
		} else if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for other, old := range a.answers { // Clusters come and go
			if a.now().After(old.until) {
				delete(a.answers, other)
			}
		}
		if a.answers == nil {
			a.answers = map[types.UID]approvalAnswer{}
		}
		a.answers[cluster] = answer
		return nil, err
	})
	return err
}

// known returns the answer that is still good.
func (a *Approval) known(cluster types.UID) (approvalAnswer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, is := a.answers[cluster]
	return known, is && a.now().Before(known.until)
}

func (a *Approval) now() time.Time {
	if a.Clock == nil {
		return time.Now()
	}
	return a.Clock.Now()
}
