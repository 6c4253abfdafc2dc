package update

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// rolloutRetry is how soon a pool is looked at again while a gate is closed, or its workload cluster can't be reached.
const rolloutRetry = 10 * time.Second

// targetRetry is how soon a pool is looked at again while it is not known what some of its hosts should run. Nothing
// watches all that this depends on: the CA of the config server is a file.
const targetRetry = time.Minute

// rollouts reconciles MachineConfigPools: it decides which hosts have slots. It tells no host anything. That is done by
// the reconciler of the hosts, which acts on the slots.
type rollouts struct{ *Updates }

// Reconcile decides which hosts of one pool have slots, in one write that is locked to the version of the pool. So
// a manager that writes the slots knows all others, even if its caches of hosts and Nodes are late.
//
// A pool with thousands of hosts has many events, and each decision looks at all hosts. So events are coalesced: the
// looks at a pool take a twentieth of the time.
func (r rollouts) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if wait := r.pace.wait(req.NamespacedName, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	s, err := r.newScope(ctx, req.NamespacedName)
	if err != nil || s == nil {
		return r.result(ctx, err)
	}
	if r.written.IsStale(s.pool) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	again, err := r.follow(ctx, s)
	if err != nil {
		if r.lasts(s.pool.UID, err) {
			r.Recorder.Eventf(s.pool, nil, corev1.EventTypeWarning, poolv1.EventRolloutFailing, "ChooseHosts", "%s",
				rollout.Clean("no host begins an update, which is retried: "+err.Error(), maxNote))
		}
		return r.result(ctx, err)
	}
	r.failing.end(s.pool.UID)
	return ctrl.Result{RequeueAfter: earlier(again, s.hold.Wait)}, nil
}

// follow frees the slots of hosts that are done, gives slots to the next hosts, and writes that. It returns when to
// look again if no event comes before, or 0.
func (r rollouts) follow(ctx context.Context, s *poolScope) (time.Duration, error) {
	began, now := time.Now(), r.now()
	wait, isBuilt := rollout.SlotsOpenIn(s.pool, now)
	if err := r.gather(ctx, s, !isBuilt); err != nil {
		return 0, err
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
	r.pace.took(client.ObjectKeyFromObject(s.pool), time.Since(began))
	next, failed := r.passGates(ctx, s, next)
	s.take(next)
	if failed == nil { // otherwise it is not known whether hosts wait for gates
		r.reportHeld(ctx, s)
	}
	if s.isIncomplete {
		again = earlier(again, targetRetry)
	}
	if s.gates.closed != nil {
		again = earlier(again, rolloutRetry)
	}
	return earlier(again, wait), errors.Join(failed, r.write(ctx, s, open, failed == nil))
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

// write writes the slots, and the condition of the gates if isDecided is true.
func (r rollouts) write(ctx context.Context, s *poolScope, open *metav1.Time, isDecided bool) error {
	p := s.pool.DeepCopy()
	if !equality.Semantic.DeepEqual(p.Status.Slots, s.slots) {
		p.Status.Slots = s.slots
	}
	p.Status.SlotsOpenTime = open
	report := func() {}
	if isDecided {
		report = r.setGatesOpen(s, p)
	}
	if err := status.Patch(ctx, r.Client, s.pool, p); err != nil {
		return client.IgnoreNotFound(err)
	}
	if p.ResourceVersion != s.pool.ResourceVersion {
		r.written.Record(p)
	}
	report()
	return nil
}

// result returns the result for an error.
func (r rollouts) result(ctx context.Context, err error) (ctrl.Result, error) {
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the cluster source triggers every pool when there is a connection
	}
	if workload.IsUnreachable(err) {
		ctrl.LoggerFrom(ctx).V(2).Info("Workload cluster can't be reached, waiting", "error", err.Error())
		return ctrl.Result{RequeueAfter: rolloutRetry}, nil
	}
	return status.RetryConflict(ctx, ctrl.Result{}, err)
}

// newScope returns nil if there is nothing to do for a pool.
func (r rollouts) newScope(ctx context.Context, key client.ObjectKey) (*poolScope, error) {
	p, err := workload.GetIfExists[poolv1.MachineConfigPool](ctx, r.Client, key)
	if err != nil || p == nil || !p.DeletionTimestamp.IsZero() {
		r.held.set(key, nil)
		return nil, err
	}
	cluster, pools, err := workload.ClusterWithPools(ctx, r.Client, workload.ClusterOfPool(p), r.WatchFilterValue)
	if err != nil || pools == nil || capiannotations.HasPaused(p) {
		return nil, err
	}
	if only, err := pool.OfRole(pools, p.Spec.PoolRole); err != nil || only.Name != p.Name {
		return nil, nil //nolint:nilerr // Two pools would take the hosts from each other. Their conditions report it.
	}
	s := &poolScope{poolContext: r.poolContextOf(ctx, cluster, p, pools)}
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.poolController, Name: poolWatchName, Configs: r.Client}
	if err := watch.NodesOfPools(ctx, workload.ClusterOfPool(p), nodeChanged()); err != nil {
		return nil, err
	}
	if s.nodes, err = workload.Client(ctx, r.ClusterCache, workload.ClusterOfPool(p)); err != nil {
		return nil, err
	}
	s.liveNodes, err = workload.LiveClient(ctx, r.ClusterCache, workload.ClusterOfPool(p))
	return s, err
}
