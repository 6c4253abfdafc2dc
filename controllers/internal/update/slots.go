package update

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// rolloutRetry is how soon a pool is looked at again while a gate is closed, or its workload cluster can't be reached.
const rolloutRetry = 10 * time.Second

// targetRetry is how soon a pool is looked at again while it is not known what some of its hosts should run. Nothing
// watches all that this depends on: the CA of the config server is a file.
const targetRetry = time.Minute

// ChooseHosts decides which hosts of a pool have slots. It changes the slots in the status of the pool, and the
// condition UpdateGatesOpen, and tells no host anything: the phases of the hosts act on the slots. write writes the
// status, locked to the version that was read. So a manager that writes the slots knows all others, even if its caches
// of hosts and Nodes are late. The pool is to be looked at again after the returned time if no event comes before, or
// never if it is 0. The error is that of the decision, not that of write.
func (r *Updates) ChooseHosts(
	ctx context.Context, cluster *clusterv1.Cluster, p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, write func() error,
) (again time.Duration, err error) {
	report := func() {}
	s, err := r.newScope(ctx, cluster, p, pools)
	if err == nil && s != nil {
		again, report, err = r.chooseHosts(ctx, s)
		again = earlier(again, s.hold.Wait)
	}
	failed := write()
	if failed == nil {
		report()
	}
	r.reportNotChosen(p, errors.Join(err, failed))
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		return again, nil // the cluster source triggers every pool when there is a connection
	case workload.IsUnreachable(err):
		ctrl.LoggerFrom(ctx).V(2).Info("Workload cluster can't be reached, waiting", "error", err.Error())
		return rolloutRetry, nil
	}
	return again, err
}

// reportNotChosen creates an event if no host begins an update because of an error that a user must see.
func (r *Updates) reportNotChosen(p *poolv1.MachineConfigPool, err error) {
	if err == nil {
		r.failing.end(p.UID)
	} else if r.lasts(p.UID, err) {
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, poolv1.EventRolloutFailing, "ChooseHosts", "%s",
			rollout.Clean("no host begins an update, which is retried: "+err.Error(), maxNote))
	}
}

// chooseHosts frees the slots of hosts that are done, and gives slots to the next hosts. report creates the events of
// that once it is written.
func (r *Updates) chooseHosts(ctx context.Context, s *poolScope) (again time.Duration, report func(), _ error) {
	now, report := r.now(), func() {}
	wait, isBuilt := rollout.SlotsOpenIn(s.pool, now)
	if err := r.gather(ctx, s, !isBuilt); err != nil {
		return 0, report, err
	}
	hosts := make([]*rollout.Host, len(s.hosts))
	for i, h := range s.hosts {
		hosts[i] = h.Host
	}
	kept, again := rollout.KeepSlots(s.pool.Status.Slots, hosts, s.others, now)
	s.setSlots(kept)
	open := s.pool.Status.SlotsOpenTime
	var next []string
	switch {
	case !isBuilt && len(hosts) == 0: // nobody can be telling any
		open = &metav1.Time{Time: now}
	case !isBuilt:
		wait, open = rollout.SlotsPause, &metav1.Time{Time: now.Add(rollout.SlotsPause)}
	case wait == 0:
		next = s.withoutHeld(rollout.Next(s.candidates(), s.maxUnavailable))
	}
	next, failed := r.passGates(ctx, s, next)
	s.take(next)
	if s.isIncomplete {
		again = earlier(again, targetRetry)
	}
	if s.gates.closed != nil {
		again = earlier(again, rolloutRetry)
	}
	if !equality.Semantic.DeepEqual(s.pool.Status.Slots, s.slots) {
		s.pool.Status.Slots = s.slots
	}
	s.pool.Status.SlotsOpenTime = open
	if failed == nil { // otherwise it is not known whether the gates are open
		report = r.setGatesOpen(s)
	}
	return earlier(again, wait), report, failed
}

// take gives hosts slots for their targets. A host that has a slot for something else gets another one.
func (s *poolScope) take(names []string) {
	for _, h := range s.named(names) {
		next := poolv1.UpdateSlot{ID: rollout.NewSlotID(), Host: h.Name(), Revision: h.target}
		if slot := s.slot(h); slot != nil {
			*slot = next
		} else if len(s.slots) < rollout.MaxSlots {
			s.slots = append(s.slots, next)
		}
	}
}

// newScope returns nil if there is nothing to choose for a pool.
func (r *Updates) newScope(ctx context.Context, cluster *clusterv1.Cluster, p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) (*poolScope, error) {
	if !workload.HasNodes(cluster, r.WatchFilterValue) {
		return nil, nil
	}
	if only, err := pool.OfRole(pools, p.Spec.PoolRole); err != nil || only.Name != p.Name {
		return nil, nil //nolint:nilerr // Two pools would take the hosts from each other. Their conditions report it.
	}
	s := &poolScope{poolContext: r.poolContextOf(ctx, cluster, p, pools)}
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.poolController, Name: poolWatchName, Configs: r.Client}
	err := watch.NodesOfPools(ctx, workload.ClusterOfPool(p))
	if err != nil {
		return nil, err
	}
	if s.nodes, err = workload.Client(ctx, r.ClusterCache, workload.ClusterOfPool(p)); err != nil {
		return nil, err
	}
	s.liveNodes, err = workload.LiveClient(ctx, r.ClusterCache, workload.ClusterOfPool(p))
	return s, err
}
