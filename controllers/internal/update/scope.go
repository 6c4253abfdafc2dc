package update

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// poolScope has the objects of one reconcile of a pool.
type poolScope struct {
	poolContext
	// nodes reads Nodes from the cache. liveNodes reads them from the API server of the workload cluster.
	nodes, liveNodes client.Reader
	// maxUnavailable is the limit for the hosts.
	maxUnavailable int
	// hosts are the hosts of the pool. isIncomplete means that the targets of some are not known because of an error.
	hosts        []*host
	isIncomplete bool
	// notReplaced count for hosts that are gone and whose replacements have not joined.
	notReplaced []rollout.Candidate
	// others are the PoolbootConfigs for slots whose hosts are none of these.
	others rollout.SlotHosts
	// slots are those of the pool, as they are to be written. slotOf has their indexes by the hosts.
	slots  []poolv1.UpdateSlot
	slotOf map[string]int
	// gates are the update gates, once they were read for this reconcile.
	gates gates
}

// gather reads the hosts of the pool, and determines what they should run. It reads them live if isLive is true, which
// costs a list of all of them.
func (r *Updates) gather(ctx context.Context, s *poolScope, isLive bool) error {
	cluster := workload.ClusterOfPool(s.pool)
	var management client.Reader = r.Client
	nodesOf := s.nodes
	if isLive {
		management, nodesOf = r.APIReader, s.liveNodes
	}
	ofCluster := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy}
	configs, machines, nodes := &bootstrapv1.PoolbootConfigList{}, &clusterv1.MachineList{}, &corev1.NodeList{}
	if err := management.List(ctx, configs, ofCluster...); err != nil {
		return fmt.Errorf("read the PoolbootConfigs of Cluster %s: %w", cluster, err)
	}
	if err := r.Client.List(ctx, machines, ofCluster...); err != nil {
		return fmt.Errorf("read the Machines of Cluster %s: %w", cluster, err)
	}
	if err := nodesOf.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("read the Nodes of Cluster %s: %w", cluster, err)
	}
	for _, h := range rollout.HostsOfPool(s.pool.Spec.PoolRole, s.pools, configs.Items, machines.Items, nodes.Items) {
		h := &host{Host: h}
		if err := r.aim(ctx, s, h); err != nil {
			return err
		}
		s.hosts = append(s.hosts, h)
	}
	s.others = othersOf(ctx, s.pool, configs.Items, machines.Items)
	s.notReplaced = rollout.NotReplaced(s.pool, len(s.hosts))
	var err error
	s.maxUnavailable, err = rollout.MaxUnavailable(s.pool.Spec.MaxUnavailable, len(s.hosts)+len(s.notReplaced))
	return err
}

// othersOf returns the PoolbootConfigs of the Cluster of a pool for slots whose hosts are none of the pool.
func othersOf(ctx context.Context, p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, machines []clusterv1.Machine) rollout.SlotHosts {
	others := rollout.SlotHosts{Elsewhere: sets.New[string](), Present: sets.New[string]()}
	for i := range configs {
		if role := configs[i].Status.PoolRole; role != "" && role != p.Spec.PoolRole {
			others.Elsewhere.Insert(configs[i].Name)
		} else {
			others.Present.Insert(configs[i].Name)
		}
	}
	for i := range machines {
		for _, config := range workload.ConfigOfMachine(ctx, &machines[i]) {
			others.Present.Insert(config.Name)
		}
	}
	return others
}

// aim determines the target of a host.
func (r *Updates) aim(ctx context.Context, s *poolScope, h *host) error {
	if h.IsExcluded() || s.hold.Why != "" && h.hasSettled() {
		return nil
	}
	revision, err := r.revisionOf(ctx, h, s.poolContext)
	switch {
	case workload.IsUnreachable(err):
		return err
	case err != nil: // the condition Updated of the host has the same error
		ctrl.LoggerFrom(ctx).V(2).Info("The target of a host can't be determined", "PoolbootConfig", h.Name(), "error", err.Error())
	default:
		h.target = revision
	}
	s.isIncomplete = s.isIncomplete || err != nil && !errors.Is(err, errNothingToRun)
	return nil
}

// candidates returns the hosts as the rollout sees them, and what else counts: slots whose hosts are none of the pool,
// and hosts that are gone. One that is gone and has a slot counts once.
func (s *poolScope) candidates() []rollout.Candidate {
	candidates := make([]rollout.Candidate, 0, len(s.hosts)+len(s.slots)+len(s.notReplaced))
	ofPool := sets.New[string]()
	for _, h := range s.hosts {
		candidates = append(candidates, s.candidate(h))
		ofPool.Insert(h.Name())
	}
	gone := 0
	for i := range s.slots {
		if slot := &s.slots[i]; !ofPool.Has(slot.Host) {
			candidates = append(candidates, rollout.Candidate{Name: slot.Host, HasSlot: true, Progress: rollout.Unknown, IsExcluded: true})
			if slot.GoneTime != nil {
				gone++
			}
		}
	}
	return append(candidates, s.notReplaced[min(gone, len(s.notReplaced)):]...)
}

// candidate returns a host as the rollout sees it.
func (s *poolScope) candidate(h *host) rollout.Candidate {
	return h.ForRollout(s.pool, h.target, s.slot(h))
}

// slot returns the slot of a host, or nil.
func (s *poolScope) slot(h *host) *poolv1.UpdateSlot {
	if i, has := s.slotOf[h.Name()]; has {
		return &s.slots[i]
	}
	return nil
}

// setSlots sets the slots of the pool.
func (s *poolScope) setSlots(slots []poolv1.UpdateSlot) {
	s.slots, s.slotOf = slots, make(map[string]int, len(slots))
	for i := range slots {
		s.slotOf[slots[i].Host] = i
	}
}

// withoutHeld returns those of the hosts that get their target although the pool begins no update: all if nothing holds
// the pool back, and otherwise those that return to what they have, because their update ends by that.
func (s *poolScope) withoutHeld(names []string) (held []string) {
	if s.hold.Why == "" {
		return names
	}
	for _, h := range s.named(names) {
		if h.returns() {
			held = append(held, h.Name())
		}
	}
	return held
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

// returns reports whether the target of a host is what it has: its update ends by that.
func (h *host) returns() bool { return h.target != "" && h.target == h.Report.Current }

// hasSettled reports whether a host has what is recorded for it and what it was told.
func (h *host) hasSettled() bool {
	return h.Desired() != "" && h.Told() == h.Desired() && h.Told() == h.Report.Current
}
