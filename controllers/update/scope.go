package update

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// poolScope has the objects of one reconcile of a pool.
type poolScope struct {
	surroundings
	// nodes reads Nodes from the cache, and writes to the workload cluster. liveNodes reads from its API server.
	nodes, liveNodes client.Client
	// maxUnavailable is the limit for the hosts.
	maxUnavailable int
	// hosts are the hosts of the pool. isIncomplete means that the targets of some are not known because of an error.
	hosts        []*host
	isIncomplete bool
	// notReplaced count for hosts that are gone and whose replacements have not joined.
	notReplaced []rollout.Candidate
	// unadoptable has the names of the hosts of which nothing is recorded, and of which it is known that nothing can
	// be: they are updated like any other. Another host of which nothing is recorded is left alone.
	unadoptable map[string]bool
	// places are the places of the pool that are taken, or nil if that is not known yet. doubts are those about hosts
	// with a place, by the names of the hosts, and strangers are the names of Nodes with a place that are not Nodes of
	// these hosts.
	places    *places
	doubts    map[string]doubt
	strangers []string
	// gates are the update gates, once they were read for this reconcile.
	gates gates
}

// forRollout returns the hosts as the rollout sees them. A host that must be adopted first is left alone, also if it
// was not among the hosts yet when others were adopted: it would get another revision than the one that it booted with.
func (s *poolScope) forRollout() []rollout.Candidate {
	hosts := make([]rollout.Candidate, len(s.hosts), len(s.hosts)+len(s.strangers))
	for i, h := range s.hosts {
		hosts[i] = h.see(s).Candidate
		hosts[i].IsExcluded = hosts[i].IsExcluded || h.see(s).mustBeAdopted && !s.unadoptable[h.Name()]
		switch s.doubts[h.Name()] {
		case isOpen:
			hosts[i].Progress = rollout.Unknown
		case isBehind, isWritten: // it can't be told now
			hosts[i].Progress, hosts[i].IsPending, hosts[i].IsExcluded = rollout.Unknown, false, true
		}
	}
	for _, node := range s.strangers {
		hosts = append(hosts, rollout.Candidate{Name: node, Progress: rollout.Unknown, IsExcluded: true})
	}
	return append(hosts, s.notReplaced...)
}

// next returns the names of the hosts for which their target is recorded now, and those of the pending hosts that can
// be told what is recorded.
func (s *poolScope) next() (next, confirmed []string) {
	hosts := s.forRollout()
	return s.withoutHeld(rollout.Next(hosts, s.maxUnavailable)), s.withoutHeld(rollout.Confirm(hosts, s.maxUnavailable))
}

// hasWork reports whether a host must be adopted or told something.
func (s *poolScope) hasWork() bool {
	return slices.ContainsFunc(s.hosts, func(h *host) bool { return h.see(s).isUntold || h.see(s).mustBeAdopted }) || s.isWaiting()
}

// isWaiting reports whether a host could be told to begin an update if there were no doubts.
func (s *poolScope) isWaiting() bool {
	hosts := s.withoutDoubts().forRollout()
	return slices.ContainsFunc(hosts, func(h rollout.Candidate) bool { return h.IsPending }) || len(rollout.Next(hosts, s.maxUnavailable)) > 0
}

// withoutDoubts returns the scope as if all doubts were resolved in favor of hosts that wait, except those about hosts
// that this process has just told.
func (s *poolScope) withoutDoubts() *poolScope {
	resolved := *s
	resolved.strangers, resolved.doubts = nil, map[string]doubt{}
	for name, d := range s.doubts {
		if d == isWritten {
			resolved.doubts[name] = d
		}
	}
	return &resolved
}

// byNode returns the hosts by the names of their Nodes.
func (s *poolScope) byNode() map[string]*host {
	hosts := make(map[string]*host, len(s.hosts))
	for _, h := range s.hosts {
		if name := h.Config.Status.NodeRef.Name; name != "" {
			hosts[name] = h
		}
	}
	return hosts
}

// named returns hosts by their names.
func (s *poolScope) named(names []string) []*host {
	byName := make(map[string]*host, len(s.hosts))
	for _, h := range s.hosts {
		byName[h.Name()] = h
	}
	hosts := make([]*host, len(names))
	for i, name := range names {
		hosts[i] = byName[name]
	}
	return hosts
}

// which returns the hosts for which something holds.
func (s *poolScope) which(holds func(*host) bool) (hosts []*host) {
	for _, h := range s.hosts {
		if holds(h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// runsTarget reports whether a host was told its target and has it, and something else is recorded.
func (h *host) runsTarget() bool {
	return h.target != h.Desired() && h.target == h.Told() && h.Report.IsDone(h.target)
}

// withoutHeld returns those of the hosts that get their target although the pool begins no update: all if nothing holds
// the pool back. Otherwise, those that return to what they have, because their update ends by that, and those in an
// update for which something else was already recorded, because their drain only goes on when they are told.
func (s *poolScope) withoutHeld(names []string) []string {
	if s.hold.Why == "" {
		return names
	}
	var held []string
	for _, h := range s.named(names) {
		if h.returns() || h.see(s).IsPending && h.hasBegun() {
			held = append(held, h.Name())
		}
	}
	return held
}

// mustBeAdopted reports whether nothing is recorded for a host with an agent.
func (h *host) mustBeAdopted() bool { return h.Desired() == "" && !h.IsExcluded() }

// returns reports whether the target of a host is what it has: its update ends by that.
func (h *host) returns() bool { return h.target != "" && h.target == h.Report.Current }

// hasBegun reports whether the manager has begun an update of the host, and has not undone all of that.
func (h *host) hasBegun() bool {
	return h.HasBegun() || h.Node != nil && rollout.IsCordonedByUpdate(h.Node)
}

// hasSettled reports whether a host has what is recorded for it and what it was told.
func (h *host) hasSettled() bool {
	return !h.mustBeAdopted() && h.Told() == h.Desired() && h.Told() == h.Report.Current
}
