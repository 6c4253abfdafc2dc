package update

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// rolloutRetry is how soon a pool is looked at again while hosts that are recorded can't be told, or another manager
// has recorded others. Usually an event comes first.
const rolloutRetry = 10 * time.Second

// targetRetry is how soon a pool is looked at again while it is not known what some of its hosts should run. Nothing
// watches all that this depends on: the CA of the config server is a file.
const targetRetry = time.Minute

// rollouts reconciles MachineConfigPools. One pool is never reconciled twice at the same time by one manager.
type rollouts struct{ *Reconciler }

// Reconcile tells the hosts of one pool what to run. Hosts take their places in one write. Then each is told in
// three: the Secret with the assignment, the record in the PoolbootConfig, and the annotation of its Node. After a
// crash between any two of them, the host keeps its place and is told later. What fails for one host does not stop
// the others.
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
	again, err := r.follow(ctx, s)
	if err == nil || s.gates.wereRead { // otherwise it is not known whether hosts wait for gates
		r.reportHeld(ctx, s)
		err = errors.Join(err, r.reportGates(ctx, s))
	}
	if err != nil {
		r.reportRolloutFailing(s.pool, err)
		return r.result(ctx, err)
	}
	r.failing.end(s.pool.UID)
	return ctrl.Result{RequeueAfter: earlier(again, s.hold.Wait)}, nil
}

// reportRolloutFailing creates an event if an error is one that users must see.
func (r rollouts) reportRolloutFailing(p *poolv1.MachineConfigPool, err error) {
	if r.lasts(p.UID, err) {
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, poolv1.EventRolloutFailing, "TellHosts", "%s",
			rollout.Clean("hosts can't be told what to run, which is retried: "+err.Error(), maxNote))
	}
}

// follow tells the hosts of a pool what to run. What disrupts nothing is done by what the cache knows. For an update, a
// host takes one of the places of the pool before. It returns when to look again if no event comes before, or 0.
func (r rollouts) follow(ctx context.Context, s *poolScope) (again time.Duration, _ error) {
	began := time.Now()
	err := r.gather(ctx, s)
	hasWork := err == nil && s.hasWork()
	r.pace.took(client.ObjectKeyFromObject(s.pool), time.Since(began))
	if s.isIncomplete {
		again = targetRetry
	}
	if !hasWork {
		return again, err
	}
	if err := errors.Join(r.adopt(ctx, s), r.tellUndisrupted(ctx, s), r.start(ctx, s)); err != nil {
		return 0, err
	}
	if s.hold.Why == "" && s.isWaiting() || s.gates.closed != nil {
		return rolloutRetry, nil
	}
	return again, nil
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
		r.looks.forget(key)
		r.places.set(key, nil)
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
	s := &poolScope{surroundings: r.surroundingsOf(ctx, cluster, p, pools)}
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
