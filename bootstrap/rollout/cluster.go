package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// WorkerWithLimit returns the worker pool if it has a limit for all pools of its Cluster, or nil.
func WorkerWithLimit(pools []poolv1.MachineConfigPool) *poolv1.MachineConfigPool {
	worker, err := pool.OfRole(pools, poolv1.RoleWorker)
	if err != nil || !worker.Spec.Updates.Cluster.HasLimit() {
		return nil
	}
	return worker
}

// IntentLife is how long an intent counts at most if its pool is not written: the writes of a manager take less.
const IntentLife = SlotsPause + MaxSkew

// LiveIntents returns the intents whose pools can still write slots for them. That write is locked to the version that
// the intent has. So once the pool has another version, its slots say what came of it.
func LiveIntents(intents []poolv1.SlotIntent, pools []poolv1.MachineConfigPool, now time.Time) (live []poolv1.SlotIntent) {
	for _, intent := range intents {
		i := slices.IndexFunc(pools, func(p poolv1.MachineConfigPool) bool { return p.Name == intent.Pool })
		if i >= 0 && pools[i].ResourceVersion == intent.PoolVersion && intent.Time != nil && now.Sub(intent.Time.Time).Abs() <= IntentLife {
			live = append(live, intent)
		}
	}
	return live
}

// ClusterHosts are all hosts of a Cluster, as the limit for all of its pools counts them.
type ClusterHosts struct {
	worker *poolv1.MachineConfigPool
	byName map[string]Candidate
	// unknown is the pool whose slots are not known, or nil.
	unknown *poolv1.MachineConfigPool
}

// CountCluster counts the hosts of all pools of a Cluster, as they were read at one moment. p is one of them, with the
// slots that it keeps: its own intents do not count, because it is about to write them again. hostsOf returns the hosts
// that are recorded in the pool with a role.
func CountCluster(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, hostsOf func(role string) []*Host, roles sets.Set[string], now time.Time) *ClusterHosts {
	c := &ClusterHosts{worker: WorkerWithLimit(pools), byName: map[string]Candidate{}}
	slots, of := map[string][]poolv1.UpdateSlot{}, map[string]*poolv1.MachineConfigPool{}
	roles = roles.Clone()
	for i := range pools {
		other := &pools[i]
		role := other.Spec.PoolRole
		roles.Insert(role)
		slots[role], of[role] = append(slots[role], other.Status.Slots...), other
		wait, isBuilt := SlotsOpenIn(other, now)
		if only, err := pool.OfRole(pools, role); err == nil && only.Name == other.Name && other.Name != p.Name && (wait > 0 || !isBuilt) && !capiannotations.HasPaused(other) {
			c.unknown = other
		}
	}
	for role := range roles {
		hosts, in := hostsOf(role), of[role]
		if in == nil { // the hosts of a pool that is gone end what they have begun
			in = &poolv1.MachineConfigPool{}
		}
		kept, hold := KeepSlots(slots[role], hosts, nil), HoldOf(in, now)
		for _, h := range hosts {
			candidate := h.ForRollout(in, "", SlotOf(kept, h.Name()), hold)
			if candidate.Domain = ""; h.Node != nil {
				candidate.Domain = h.Node.Labels[c.worker.Spec.Updates.Cluster.FailureDomainLabel]
			}
			c.add(candidate)
		}
		for _, slot := range kept {
			c.add(Candidate{Name: slot.Host, Progress: Unknown})
		}
		for _, gone := range NotReplaced(in, len(hosts)) {
			gone.Name = role + ": " + gone.Name
			c.add(gone)
		}
	}
	for _, intent := range LiveIntents(c.worker.Status.SlotIntents, pools, now) {
		if intent.Pool != p.Name {
			candidate := c.byName[intent.Host]
			candidate.Name, candidate.Progress, candidate.IsExcluded = intent.Host, InUpdate, true
			c.byName[intent.Host] = candidate
		}
	}
	return c
}

// add adds a host. One whose record is lost, or that has moved, can be in several pools, and is away if it is in one.
func (c *ClusterHosts) add(h Candidate) {
	old, has := c.byName[h.Name]
	if domain := cmp.Or(h.Domain, old.Domain); has {
		if old.TakesPlace() {
			h = old
		}
		h.Domain = domain
	}
	h.IsExcluded = true
	c.byName[h.Name] = h
}

// Fit returns the names of those of the hosts that can begin their updates, and why the others can't, or nil. They are
// chosen by the rules of a pool, as if the Cluster were one.
func (c *ClusterHosts) Fit(beginning []Candidate) (fit sets.Set[string], closed *ClosedGate) {
	settings, fit := c.worker.Spec.Updates.Cluster, sets.New[string]()
	refuse := func(format string, args ...any) *ClosedGate {
		return &ClosedGate{poolv1.ClusterLimitReason, fmt.Sprintf("spec.updates.cluster of MachineConfigPool %s limits all pools, and ", c.worker.Name) + fmt.Sprintf(format, args...)}
	}
	if c.unknown != nil {
		return fit, refuse("MachineConfigPool %s has not found out yet which of its hosts are away: see its conditions if it does not within a minute", c.unknown.Name)
	}
	for _, h := range beginning {
		h.Domain = c.byName[h.Name].Domain
		c.byName[h.Name] = h
	}
	all := make([]Candidate, 0, len(c.byName))
	var away []string
	for name, h := range c.byName {
		if all = append(all, h); h.TakesPlace() {
			away = append(away, name)
		}
	}
	limit := len(all)
	if settings.MaxUnavailable != nil {
		var err error
		if limit, err = MaxUnavailable(settings.MaxUnavailable, len(all)); err != nil {
			return fit, refuse("its %s", err)
		}
	}
	fit.Insert(Next(all, limit)...)
	if len(fit) == len(beginning) {
		return fit, nil
	}
	slices.Sort(away)
	which := fmt.Sprintf("%d of %d hosts", limit, len(all))
	if settings.FailureDomainLabel != "" {
		which += " with one value of " + settings.FailureDomainLabel
	}
	return fit, refuse("%s can be unavailable at a time, now %s: wait for these, or correct them", which, cmp.Or(excerpt.List(maxAway, away), "those that begin"))
}

// maxAway is how many hosts a message names that take the places of a Cluster.
const maxAway = 5
