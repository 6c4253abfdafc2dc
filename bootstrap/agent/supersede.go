package agent

import (
	"context"
	"sync"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

// supersedeAfter is how long an update is carried out, and then verified, before another revision takes its place. It
// is counted from the change or the boot of the host. A host that works is soon verified: to undo its update would cost
// a reboot more. A host that should return to what it had before does not wait.
const supersedeAfter = time.Minute

// supersedes reports whether a Node names another revision than that of the update in progress. A repair ends before:
// it is short, and does not depend on the cluster.
func supersedes(node Node, j journal) bool {
	desired := node.Annotations[agentv1.DesiredAnnotation]
	return isRevision(desired) && desired != j.Target && j.Target != j.Current
}

// returns reports whether a Node names the revision that the host had before the update in progress.
func returns(node Node, j journal) bool {
	return node.Annotations[agentv1.DesiredAnnotation] == j.Current
}

// supersede begins to undo the update because the host should run another revision.
func (a *Agent) supersede() (time.Duration, error) {
	a.Log.Info("the update is undone, because the host should run another revision", "revision", a.journal.Target)
	return a.beginUndo(failure{Of: a.journal.Target, Why: "the host should run another revision", IsSuperseded: true})
}

// carrying is an update whose operations or actions are carried out, and the Node as it was seen last. It is safe for
// concurrent use.
type carrying struct {
	mu      sync.Mutex
	seen    *Node
	journal journal
	began   time.Time
	cancel  context.CancelFunc
	// endStaging ends the staging of the next update, if there is one. staged is the Node with which it began.
	endStaging context.CancelFunc
	staged     Node
	// timer checks again when the update has lasted long enough.
	timer *time.Timer
}

// begin returns a context that ends when the Node names another revision than the update. Call done after the work.
func (c *carrying) begin(ctx context.Context, node Node, j journal) (work context.Context, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	work, c.cancel = context.WithCancel(ctx)
	c.journal, c.began = j, time.Now()
	if c.seen != nil {
		node = *c.seen
	}
	c.check(node)
	return work, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cancel()
		c.cancel = nil
	}
}

// beginStaging returns a context that ends when the Node names other revisions than those with which the staging of
// the next one began. Call done after the work.
func (c *carrying) beginStaging(ctx context.Context, node Node) (work context.Context, done context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	work, c.endStaging = context.WithCancel(ctx)
	c.staged = node
	if c.seen != nil {
		c.check(*c.seen)
	}
	return work, c.endStaging
}

func (c *carrying) check(node Node) {
	for _, revision := range []string{agentv1.DesiredAnnotation, agentv1.NextAnnotation} {
		if c.endStaging != nil && node.Known && node.Annotations[revision] != c.staged.Annotations[revision] {
			c.endStaging()
		}
	}
	if c.cancel == nil || !node.Known || !supersedes(node, c.journal) {
		return
	}
	if wait := supersedeAfter - time.Since(c.began); wait > 0 && !returns(node, c.journal) {
		if c.timer == nil {
			c.timer = time.AfterFunc(wait, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.timer = nil
				if c.seen != nil {
					node = *c.seen
				}
				c.check(node)
			})
		}
		return
	}
	c.cancel()
}

// newest returns the Node that was seen last, or else the one that a Step began with.
func (c *carrying) newest(node Node) Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen != nil {
		return *c.seen
	}
	return node
}

// See tells the agent what its Node looks like now. Unlike other methods, it can be called at any time: what Step
// carries out for a revision that the host should not run any more ends at once, and is undone.
func (a *Agent) See(node Node) {
	a.carrying.mu.Lock()
	defer a.carrying.mu.Unlock()
	a.carrying.seen = &node
	a.carrying.check(node)
}
