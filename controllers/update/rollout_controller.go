package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hoststate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// rolloutRetry is how soon a pool is looked at again while hosts that are recorded can't be told, or another manager
// has recorded others. Usually an event comes first.
const rolloutRetry = 10 * time.Second

// rollouts reconciles MachineConfigPools. One pool is never reconciled twice at the same time by one manager.
type rollouts struct{ *Reconciler }

// poolScope has the objects of one reconcile of a pool.
type poolScope struct {
	surroundings
	// nodes reads Nodes from the cache, and writes them. liveNodes reads them from the API server.
	nodes, liveNodes client.Client
	// maxUnavailable is the limit for the hosts.
	maxUnavailable int
	// hosts are the hosts of the pool.
	hosts []*host
	// gates are the update gates, once they were read for this reconcile.
	gates gates
}

// Reconcile tells the hosts of one pool what to run. A host is told in three writes: the Secret with the assignment,
// then the record in the PoolbootConfig, then the annotation of its Node. After a crash between any two of them, the
// record is there and the annotation is not, so the host is pending: it counts as soon as it can be told. What fails
// for one host does not stop the others.
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
	result, err := r.follow(ctx, s)
	if s.hold.Wait > 0 {
		result.RequeueAfter = s.hold.Wait // until then, there is nothing to retry
	}
	if err != nil {
		return result, err
	}
	if err := r.reportGates(ctx, s); err != nil {
		return r.result(ctx, err)
	}
	return result, nil
}

// follow tells the hosts of a pool what to run. What disrupts nothing is done by what the cache knows. A host takes one
// of the places of the pool only after a look at all records in the API server, which is later than its own record.
func (r rollouts) follow(ctx context.Context, s *poolScope) (ctrl.Result, error) {
	began := time.Now()
	err := r.gather(ctx, s)
	hasWork := err == nil && s.hasWork()
	r.pace.took(client.ObjectKeyFromObject(s.pool), time.Since(began))
	if !hasWork {
		return r.result(ctx, err)
	}
	failed := errors.Join(r.adopt(ctx, s), r.tellUndisrupted(ctx, s))
	if len(s.withoutHeld(s.pending())) > 0 {
		if err := r.gatherCurrent(ctx, s); err != nil {
			return r.result(ctx, errors.Join(failed, err))
		}
		failed = errors.Join(failed, r.tellPending(ctx, s, s.pending()))
	}
	if failed = errors.Join(failed, r.start(ctx, s)); failed != nil {
		return r.result(ctx, failed)
	}
	if s.hold.Why == "" && (len(s.pending()) > 0 || len(rollout.Next(s.forRollout(), s.maxUnavailable)) > 0) {
		return ctrl.Result{RequeueAfter: rolloutRetry}, nil
	}
	return ctrl.Result{}, nil
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

// gather reads the hosts from the cache, and determines what they should run.
func (r rollouts) gather(ctx context.Context, s *poolScope) error {
	configs, nodes, err := r.cached(ctx, s)
	if err != nil {
		return err
	}
	return r.gatherFrom(ctx, s, configs, nodes)
}

// gatherCurrent is gather with the records and the Nodes as they are now. In an older version, a Node can have what was
// recorded for it, then another revision, and then the first one again.
func (r rollouts) gatherCurrent(ctx context.Context, s *poolScope) error {
	configs, nodes, err := r.cached(ctx, s)
	if err != nil {
		return err
	}
	cluster := workload.ClusterOfPool(s.pool)
	if configs, err = current(ctx, configs, r.APIReader, bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), s.ofCluster()...); err != nil {
		return fmt.Errorf("read the PoolbootConfigs of Cluster %s: %w", cluster, err)
	}
	if nodes, err = current(ctx, nodes, s.liveNodes, corev1.SchemeGroupVersion.WithKind("Node")); err != nil {
		return fmt.Errorf("read the Nodes of Cluster %s: %w", cluster, err)
	}
	return r.gatherFrom(ctx, s, configs, nodes)
}

// forRollout returns the hosts as the rollout sees them. A host that must be adopted first is left alone.
func (s *poolScope) forRollout() []rollout.Host {
	hosts := make([]rollout.Host, len(s.hosts))
	for i, h := range s.hosts {
		hosts[i] = h.see(s).Host
	}
	return hosts
}

// hasWork reports whether a host must be adopted or told something.
func (s *poolScope) hasWork() bool {
	return slices.ContainsFunc(s.hosts, func(h *host) bool { return h.see(s).isUntold || h.see(s).mustBeAdopted }) ||
		len(rollout.Next(s.forRollout(), s.maxUnavailable)) > 0
}

// pending returns the names of the hosts that are recorded and were not told.
func (s *poolScope) pending() (names []string) {
	for _, h := range s.hosts {
		if h.see(s).IsPending {
			names = append(names, h.Name())
		}
	}
	return names
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
// the pool back, and otherwise those that return to what they have. Their update ends by that.
func (s *poolScope) withoutHeld(names []string) []string {
	if s.hold.Why == "" {
		return names
	}
	var held []string
	for _, h := range s.named(names) {
		if h.target != "" && h.target == h.Report.Current {
			held = append(held, h.Name())
		}
	}
	return held
}

// mustBeAdopted reports whether nothing is recorded for a host with an agent.
func (h *host) mustBeAdopted() bool { return h.Desired() == "" && !h.IsExcluded() }

// hasSettled reports whether a host has what is recorded for it and what it was told.
func (h *host) hasSettled() bool {
	return !h.mustBeAdopted() && h.Told() == h.Desired() && h.Told() == h.Report.Current
}

// adopt records what hosts run of which nothing is recorded: those that booted for the first time have what was stored
// for them before that. After clusterctl move, the agents of others report it, and what a host was told is on its Node.
// This disrupts nothing, so it also happens in a paused pool. A host that has another revision, and was told another
// one, is updated like any other.
//
// A host that was told its target and has it keeps it, also if something else is recorded, as after the restore of a
// backup.
func (r rollouts) adopt(ctx context.Context, s *poolScope) error {
	isConcerned := func(h *host) bool { return h.mustBeAdopted() || h.runsTarget() }
	return inParallel(s.which(isConcerned), r.parallel, func(h *host) error {
		if h.runsTarget() {
			_, err := r.storeAndRecord(ctx, h, s.surroundings)
			return err
		}
		stored, err := r.storedOf(ctx, h.Config)
		switch {
		case err != nil:
		case stored != nil && (h.Report.Current == "" || h.Report.Current == stored.revision):
			err = r.record(ctx, h, *stored)
		case h.target != "" && (h.Report.Current == h.target || h.Told() == h.target):
			_, err = r.storeAndRecord(ctx, h, s.surroundings)
		}
		if err != nil {
			h.target, h.seen = "", nil // nothing else is recorded before
		}
		return err
	})
}

// tellUndisrupted tells the hosts what is recorded for them for which that disrupts nothing. The record must be the
// current one: by an older one, a host that was told to begin an update still has to be told what it has.
func (r rollouts) tellUndisrupted(ctx context.Context, s *poolScope) error {
	isConcerned := func(h *host) bool { return h.IsUntold() && h.CanBeTold() }
	return inParallel(s.which(isConcerned), r.parallel, func(h *host) error {
		config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.APIReader, client.ObjectKeyFromObject(h.Config))
		if err != nil || config == nil || config.Status.Update.DesiredRevision != h.Desired() {
			return err
		}
		return r.tell(ctx, s, h) // the patch fails if the Node is not that of the cache any more
	})
}

// tellPending tells those of the pending hosts which the pool allows.
func (r rollouts) tellPending(ctx context.Context, s *poolScope, names []string) error {
	confirmed := slices.DeleteFunc(s.withoutHeld(rollout.Confirm(s.forRollout(), s.maxUnavailable)), func(name string) bool { return !slices.Contains(names, name) })
	allowed, err := r.passGates(ctx, s, confirmed)
	if err != nil {
		return err
	}
	return inParallel(s.named(allowed), r.parallel, func(h *host) error { return r.tell(ctx, s, h) })
}

// start records the next hosts by what the cache knows, and tells them. It reads all records in between: if there is
// one that the cache did not have, of another manager for a moment when the leader changes, it withdraws its own
// records, and tries again later. Of two managers, at least the one that reads last sees the records of both. Hosts
// that were pending before stay so: each manager counts them.
func (r rollouts) start(ctx context.Context, s *poolScope) error {
	next, err := r.passGates(ctx, s, s.withoutHeld(rollout.Next(s.forRollout(), s.maxUnavailable)))
	if err != nil || len(next) == 0 {
		return err
	}
	known := s.pending()
	var own []*ownRecord
	for _, h := range s.named(next) {
		own = append(own, &ownRecord{host: h, before: *h.Config.Status.Update.DeepCopy()})
	}
	failed := inParallel(own, r.parallel, func(o *ownRecord) error {
		revision, err := r.storeAndRecord(ctx, o.host, s.surroundings)
		if err == nil {
			o.revision = revision
		}
		return err
	})
	if err := r.gatherCurrent(ctx, s); err != nil {
		return errors.Join(failed, err)
	}
	isForeign := func(name string) bool { return !slices.Contains(next, name) && !slices.Contains(known, name) }
	if !slices.ContainsFunc(s.pending(), isForeign) {
		if err := r.tellPending(ctx, s, next); err != nil {
			return errors.Join(failed, err) // told later
		}
	}
	pending := s.pending()
	own = slices.DeleteFunc(own, func(o *ownRecord) bool {
		return o.revision == "" || slices.Contains(known, o.host.Name()) || !slices.Contains(pending, o.host.Name())
	})
	return errors.Join(failed, inParallel(own, r.parallel, func(o *ownRecord) error {
		return r.change(ctx, s.named([]string{o.host.Name()})[0], func(update *bootstrapv1.UpdateStatus) {
			if update.DesiredRevision == o.revision {
				update.Desired, update.DesiredRevision, update.Force = o.before.Desired, o.before.DesiredRevision, o.before.Force
			}
		})
	}))
}

// ownRecord is a record that this manager has just written for a host, with what was recorded before. revision is "" if
// that failed.
type ownRecord struct {
	host     *host
	revision string
	before   bootstrapv1.UpdateStatus
}

// storeAndRecord stores and records what a host should run, and returns its revision.
func (r rollouts) storeAndRecord(ctx context.Context, h *host, in surroundings) (string, error) {
	t, err := r.targetOf(ctx, h, in)
	if err != nil {
		return "", err
	}
	if err := r.store(ctx, h.Config, t); err != nil {
		return "", err
	}
	return t.revision, r.record(ctx, h, t)
}

// maxForce is the maximum size of update.Force in bytes.
const maxForce = 256

// record records what a host should run, unless something else was recorded in the meantime.
func (r rollouts) record(ctx context.Context, h *host, t target) error {
	previous := h.Desired()
	return r.change(ctx, h, func(update *bootstrapv1.UpdateStatus) {
		if update.DesiredRevision == previous {
			update.Desired, update.DesiredRevision = bootstrapv1.ConfigurationReference{Name: t.configuration}, t.revision
			if update.Force = t.force; len(t.force) > maxForce {
				update.Force = ""
			}
		}
	})
}

// change changes status.update of a host. With another revision, the condition does not say any more what was wrong
// with the earlier one. It does nothing if the PoolbootConfig is being deleted.
func (r rollouts) change(ctx context.Context, h *host, change func(*bootstrapv1.UpdateStatus)) error {
	changed, err := status.Update.Change(ctx, r.Client, r.APIReader, h.Config.DeepCopy(), func(config *bootstrapv1.PoolbootConfig) {
		before := config.Status.Update.DesiredRevision
		change(&config.Status.Update)
		if c := conditions.Get(config, bootstrapv1.UpdatedCondition); c != nil && outlook.IsWrong(c) && config.Status.Update.DesiredRevision != before {
			conditions.Set(config, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node %s is about to be told to run %s",
				config.Status.NodeRef.Name, config.Status.Update.Desired.Name))
		}
	})
	if err == nil {
		host := *h.Host // others can have it
		host.Config = changed
		h.Host, h.seen = &host, nil
		r.written.Record(changed)
	}
	return client.IgnoreNotFound(err)
}

// tell tells a host what is recorded for it. Health checks of its Machine are paused before. The Node counts as drained
// for no other revision than the one that it was drained for.
func (r rollouts) tell(ctx context.Context, s *poolScope, h *host) error {
	if h.Machine != nil && !h.CanBeTold() {
		if err := r.setRemediation(ctx, h.Machine, true); err != nil {
			return err
		}
	}
	isStart := !h.CanBeTold()
	node := h.Node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredAnnotation, h.Desired())
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredConfigAnnotation, h.Config.Status.Update.Desired.Name)
	delete(node.Annotations, agentv1.DrainedAnnotation)
	delete(node.Annotations, agentv1.DrainStartedAnnotation)
	delete(node.Annotations, agentv1.DetachStartedAnnotation)
	if err := s.nodes.Patch(ctx, node, status.Locked(h.Node)); err != nil {
		return fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	r.written.Record(node)
	h.Host, h.seen = hoststate.Of(s.pools, h.Config, h.Machine, node), nil
	if isStart {
		metrics.UpdateStarted(h.Config)
		r.Recorder.Eventf(h.Config, nil, corev1.EventTypeNormal, bootstrapv1.EventUpdateStarted, action,
			"Node %s is told to run %s", node.Name, h.Config.Status.Update.Desired.Name)
	}
	return nil
}
