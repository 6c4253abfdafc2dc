package update

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/drainhook"
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
	if failed == nil && pool.IsOfControlPlane(*p) && workload.HasNodes(cluster, r.WatchFilterValue) {
		held := drainhook.FollowSlots(ctx, r.Client, r.APIReader, workload.ClusterOfPool(p), []poolv1.MachineConfigPool{*p})
		if held != nil { // it is retried, also if the workload cluster can't be reached
			err = held
		}
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
	s.setSlots(rollout.KeepSlots(s.pool.Status.Slots, hosts, s.left))
	open := s.pool.Status.SlotsOpenTime
	var next []string
	candidates := s.candidates()
	staging, untilStaged := rollout.Stage(s.pool.Status.Staging, candidates, s.pool.Spec.Updates.StagingHosts(), now)
	again = untilStaged
	switch {
	case !isBuilt && len(hosts) == 0: // nobody can be telling any
		open = &metav1.Time{Time: now}
	case !isBuilt:
		wait, open = rollout.SlotsPause, &metav1.Time{Time: now.Add(rollout.SlotsPause)}
	case wait == 0:
		next, s.gates.closedByCanary = rollout.NextAfter(&s.pool.Spec.Updates.Canary, candidates, s.maxUnavailable, now)
	}
	next, failed := r.passGates(ctx, s, next)
	if failed == nil {
		next, failed = r.declare(ctx, s, next)
	}
	s.take(next)
	if s.isIncomplete {
		again = earlier(again, targetRetry)
	}
	if s.closed() != nil {
		again = earlier(again, rolloutRetry)
	}
	if !equality.Semantic.DeepEqual(s.pool.Status.Slots, s.slots) {
		s.pool.Status.Slots = s.slots
	}
	if !equality.Semantic.DeepEqual(s.pool.Status.Staging, staging) {
		s.pool.Status.Staging = staging
	}
	s.pool.Status.SlotsOpenTime, s.pool.Status.StagedHostCount = open, s.countStaged()
	if rollout.WorkerWithLimit(s.pools) == nil {
		s.pool.Status.SlotIntents = nil
	}
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
			s.slotOf[h.Name()] = len(s.slots)
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

// poolScope has the objects of one reconcile of a pool.
type poolScope struct {
	poolContext
	// nodes reads Nodes from the cache. liveNodes reads them from the API server of the workload cluster.
	nodes, liveNodes client.Reader
	// maxUnavailable is the limit for the hosts.
	maxUnavailable int
	// all are the objects of all hosts of the Cluster.
	all objects
	// hosts are the hosts of the pool. isIncomplete means that the targets of some are not known because of an error.
	hosts        []*host
	isIncomplete bool
	// notReplaced count for hosts that are gone and whose replacements have not joined.
	notReplaced []rollout.Candidate
	// left are the hosts that have left the pool and still have slots.
	left sets.Set[string]
	// slots are those of the pool, as they are to be written. slotOf has their indexes by the hosts.
	slots  []poolv1.UpdateSlot
	slotOf map[string]int
	// limit is that for all pools, if it was looked at.
	limit clusterLimit
	// gates are the update gates, once they were read for this reconcile.
	gates gates
}

// objects are those of the hosts of a Cluster.
type objects struct {
	configs  []bootstrapv1.PoolbootConfig
	machines []clusterv1.Machine
	nodes    []corev1.Node
}

// hostsOf returns the hosts of the pool with a role, one of these pools.
func (o *objects) hostsOf(role string, pools []poolv1.MachineConfigPool) []*rollout.Host {
	return rollout.HostsOfPool(role, pools, o.configs, o.machines, o.nodes)
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
	s.all = objects{configs.Items, machines.Items, nodes.Items}
	for _, h := range s.all.hostsOf(s.pool.Spec.PoolRole, s.pools) {
		h := &host{Host: h}
		if err := r.aim(ctx, s, h); err != nil {
			return err
		}
		s.hosts = append(s.hosts, h)
	}
	s.notReplaced = rollout.NotReplaced(s.pool, len(s.hosts))
	var err error
	if s.left, err = r.leftOf(ctx, s.pool, configs.Items, machines.Items); err != nil {
		return err
	}
	s.maxUnavailable, err = rollout.MaxUnavailable(s.pool.Spec.MaxUnavailable, len(s.hosts)+len(s.notReplaced))
	return err
}

// leftOf returns the hosts with slots that have left the pool: they are recorded in another one, are again as they were
// found, or neither their PoolbootConfig nor a Machine that names it exists. A cache can lack a new PoolbootConfig, so
// it is read live. Until the host is replaced, the capacity of the pool counts it.
func (r *Updates) leftOf(ctx context.Context, p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, machines []clusterv1.Machine) (sets.Set[string], error) {
	left, unknown := sets.New[string](), sets.New[string]()
	for i := range p.Status.Slots {
		unknown.Insert(p.Status.Slots[i].Host)
	}
	for i := range configs {
		role := configs[i].Status.PoolRole
		if unknown.Has(configs[i].Name) && (role != "" && role != p.Spec.PoolRole || record.IsAsFound(&configs[i])) {
			left.Insert(configs[i].Name)
		}
		unknown.Delete(configs[i].Name)
	}
	for i := range machines {
		for _, config := range workload.ConfigOfMachine(ctx, &machines[i]) {
			unknown.Delete(config.Name)
		}
	}
	for name := range unknown {
		config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.APIReader, client.ObjectKey{Namespace: p.Namespace, Name: name})
		if err != nil {
			return nil, fmt.Errorf("read PoolbootConfig %s of a host with a slot: %w", name, err)
		}
		if config == nil {
			left.Insert(name)
		}
	}
	return left, nil
}

// aim determines the target of a host.
func (r *Updates) aim(ctx context.Context, s *poolScope, h *host) error {
	if h.IsExcluded() {
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
// and hosts that are gone.
func (s *poolScope) candidates() []rollout.Candidate {
	candidates := make([]rollout.Candidate, 0, len(s.hosts)+len(s.slots)+len(s.notReplaced))
	ofPool := sets.New[string]()
	for _, h := range s.hosts {
		candidates = append(candidates, s.candidate(h))
		ofPool.Insert(h.Name())
	}
	for i := range s.slots {
		if slot := &s.slots[i]; !ofPool.Has(slot.Host) {
			candidates = append(candidates, rollout.Candidate{Name: slot.Host, HasSlot: true, Progress: rollout.Unknown, IsExcluded: true})
		}
	}
	return append(candidates, s.notReplaced...)
}

// candidate returns a host as the rollout sees it.
func (s *poolScope) candidate(h *host) rollout.Candidate {
	return h.ForRollout(s.pool, h.target, s.slot(h), s.hold).WithStaging(h.Host)
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
