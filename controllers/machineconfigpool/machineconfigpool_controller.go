// Package machineconfigpool renders the MachineConfigs of each pool into one immutable MachineConfig. It writes the
// pool's status: which rendered config its Machines boot with, how many of them run it, which are updated next, and
// what prevents it from being rendered. It deletes rendered configs that nothing uses. The package bootstrap/pool
// decides what a pool renders, and controllers/internal/update which hosts are next. This package never changes
// Machines or Nodes.
package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/pause"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// fieldOwner is the field manager of what Poolboot writes outside the status. Another client that applies a pool
// without these fields does not remove them.
const fieldOwner = client.FieldOwner("poolboot")

// Reconciler reconciles MachineConfigPools.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads from the API server: a rendered config that the cache does not contain yet, and the users of one
	// that is to be deleted.
	APIReader client.Reader
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder

	// OverlayNamespace is the namespace of the overlay Secrets: that of the config server.
	OverlayNamespace string
	// RenderedHistory is the number of unused rendered configs that each pool keeps.
	RenderedHistory int
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
	// Updates chooses the hosts that are updated next. It is nil if the manager offers no agent.
	Updates *update.Updates

	// caches has the *renderCache of each pool, by the name of the pool.
	caches  sync.Map
	written ownwrites.Tracker
}

// Reconcile renders one pool, chooses the hosts that are updated next, and counts the hosts.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	p := &poolv1.MachineConfigPool{}
	if err := r.Client.Get(ctx, request.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.deleteCache(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.written.IsStale(p) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	if !p.DeletionTimestamp.IsZero() || (r.WatchFilterValue != "" && !labels.HasWatchLabel(p, r.WatchFilterValue)) {
		return ctrl.Result{}, nil
	}
	s, err := r.gather(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.cluster != nil { // otherwise every user who can write pools could create counters for any number of clusters
		s.cache.counters = metrics.NewPoolCounters(p)
	}
	before := p.DeepCopy()
	if isPaused, requeue, err := pause.EnsureCondition(ctx, r.Client, s.cluster, p); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	s.render()
	created, err := r.ensureRendered(ctx, s)
	err = errors.Join(err, r.checkPinned(ctx, s))
	s.setPausedConfiguration()
	s.setOwner()
	err = errors.Join(err, r.checkPausedConfiguration(ctx, s))
	s.setHandedOut(metav1.Now())
	if err = errors.Join(err, r.write(ctx, before, s)); err == nil {
		s.cache.joined = s.counted.names
		r.reportChanges(before, s, created)
		r.reportRollout(before, s)
		s.reconcileIn(s.hold.Wait)
		err = r.deleteUnused(ctx, s)
	}
	return status.RetryConflict(ctx, ctrl.Result{RequeueAfter: s.again}, errors.Join(err, s.notChosen))
}

// setOwner makes the Cluster an owner of the pool, so the pool is moved and deleted with it. The Cluster is not the
// controller, because it owns many pools.
func (s *scope) setOwner() {
	if s.cluster == nil {
		return
	}
	before := s.pool.DeepCopy() // with its owners until now
	s.pool.OwnerReferences = util.EnsureOwnerRef(s.pool.OwnerReferences, ownerReference(s.cluster))
	metav1.SetMetaDataAnnotation(&s.pool.ObjectMeta, poolv1.ClusterIdentityAnnotation, pool.ClusterIdentity(before, s.cluster.UID, s.pools))
	if s.pool.Labels[clusterv1.ClusterNameLabel] != s.cluster.Name {
		metav1.SetMetaDataLabel(&s.pool.ObjectMeta, clusterv1.ClusterNameLabel, s.cluster.Name)
	}
}

// ownerReference returns an owner reference to a Cluster that is not a controller reference.
func ownerReference(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind, Name: cluster.Name, UID: cluster.UID}
}

// write patches what differs from before, and does nothing if nothing differs. Afterwards, the pool has its current
// version, and a status that describes it. What a paused pool hands out is written first, because the status must not
// depend on anything that is not recorded. Another configuration is written before Nodes are read from the workload
// cluster, because hosts boot with it. The error is a conflict if the pool was changed after it was read.
func (r *Reconciler) write(ctx context.Context, before *poolv1.MachineConfigPool, s *scope) error {
	p := s.pool
	written := before.DeepCopy()
	if !equality.Semantic.DeepEqual(before.ObjectMeta, p.ObjectMeta) {
		written.OwnerReferences, written.Labels, written.Annotations = p.OwnerReferences, p.Labels, p.Annotations
		if err := r.Client.Patch(ctx, written, status.Locked(before), fieldOwner); err != nil {
			return fmt.Errorf("MachineConfigPool %s: %w", client.ObjectKeyFromObject(p), err)
		}
		r.written.Record(written)
	}
	p.ResourceVersion, p.Generation = written.ResourceVersion, written.Generation
	s.setStatus()
	if !equality.Semantic.DeepEqual(before.Status.Configuration, p.Status.Configuration) {
		if err := r.writeStatus(ctx, written, s); err != nil {
			return err
		}
	}
	if r.Updates == nil {
		return r.writeStatus(ctx, written, s)
	}
	var failed error
	again, err := r.Updates.ChooseHosts(ctx, s.cluster, p, s.pools, func() error {
		failed = r.writeStatus(ctx, written, s)
		return failed
	})
	s.notChosen = err // does not hold up what else the status has
	s.reconcileIn(again)
	return failed
}

// writeStatus patches the status of the pool, and makes written that version.
func (r *Reconciler) writeStatus(ctx context.Context, written *poolv1.MachineConfigPool, s *scope) error {
	base := written.DeepCopy()
	s.pool.Status.DeepCopyInto(&written.Status)
	if err := status.Patch(ctx, r.Client, base, written); err != nil {
		return err
	}
	if written.ResourceVersion != base.ResourceVersion {
		r.written.Record(written)
		written.DeepCopyInto(s.pool)
	}
	return nil
}

// reportChanges creates the events for a new failure or a new configuration.
func (r *Reconciler) reportChanges(before *poolv1.MachineConfigPool, s *scope, created bool) {
	if s.problem != nil {
		if c := meta.FindStatusCondition(before.Status.Conditions, poolv1.RenderDegradedCondition); c == nil || c.Message != s.problem.message {
			r.Recorder.Eventf(s.pool, nil, corev1.EventTypeWarning, s.problem.reason, "Render", "%s", s.problem.message)
		}
		return
	}
	isOther := !equality.Semantic.DeepEqual(before.Status.Configuration, s.pool.Status.Configuration)
	if isPinned(s.pool) && isOther {
		r.Recorder.Eventf(s.pool, nil, corev1.EventTypeNormal, poolv1.PinnedCondition, "Render", "%s", rollout.DescribePin(s.pool))
		return
	}
	if created || isOther {
		r.Recorder.Eventf(s.pool, nil, corev1.EventTypeNormal, poolv1.RenderedReason, "Render", "%s", s.renderedMessage())
	}
}

// scope has the objects and results of one reconcile.
type scope struct {
	// pool is the pool that is reconciled.
	pool *poolv1.MachineConfigPool
	// cluster is the Cluster of the pool, nil if it does not exist.
	cluster *clusterv1.Cluster
	// pools are all pools of the Cluster.
	pools []poolv1.MachineConfigPool
	// configs are the MachineConfigs of the namespace.
	configs []poolv1.MachineConfig
	// machines are the PoolbootConfigs whose recorded pool is this pool.
	machines []bootstrapv1.PoolbootConfig
	// moved is how many hosts of the pool are in another pool, or again as they were found, since the last reconcile.
	moved int32
	// unrecorded is true while a Machine that has joined, and can be in the pool, has no recorded configuration:
	// directly after clusterctl move.
	unrecorded bool

	// cache has what the last reconcile of the pool computed.
	cache *renderCache
	// counted is the state of the Machines in the status.
	counted counts
	// hold is why hosts that wait begin no update.
	hold rollout.Hold
	// notChosen is why the hosts that are updated next are not known, or nil.
	notChosen error
	// again is after which time the status can change without an event, or 0.
	again time.Duration
	// rendered is the rendered config, nil if there is a problem.
	rendered *pool.Rendered
	// pinned is what spec.configurationName names, if it can be handed out, or "". pinProblem is why it can't, or "".
	pinned, pinProblem string
	// pausedConfigurationInvalid is true if what the paused pool is to hand out cannot be handed out.
	pausedConfigurationInvalid bool
	// problem is why the pool cannot be rendered, or cannot hand out what its annotation or spec.configurationName
	// names. It is nil if it can.
	problem *problem
}

// problem is something that an administrator must correct.
type problem struct{ reason, message string }

// reconcileIn has the pool reconciled after a time at the latest, if that is more than 0.
func (s *scope) reconcileIn(wait time.Duration) {
	if wait > 0 && (s.again == 0 || wait < s.again) {
		s.again = wait
	}
}

// gather reads the objects that the decisions about a pool need.
func (r *Reconciler) gather(ctx context.Context, p *poolv1.MachineConfigPool) (*scope, error) {
	s := &scope{pool: p, cache: r.cacheOf(client.ObjectKeyFromObject(p))}
	var err error
	key := workload.ClusterOfPool(p)
	if s.cluster, err = workload.GetIfExists[clusterv1.Cluster](ctx, r.Client, key); err != nil {
		return nil, fmt.Errorf("pool's Cluster %s: %w", key, err)
	}
	if s.cluster == nil {
		return s, nil
	}
	namespace := client.InNamespace(p.Namespace)
	if s.pools, err = workload.PoolsOfCluster(ctx, r.Client, key); err != nil {
		return nil, fmt.Errorf("MachineConfigPools of namespace %s: %w", p.Namespace, err)
	}

	configs := &poolv1.MachineConfigList{}
	if err := r.Client.List(ctx, configs, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("MachineConfigs of namespace %s: %w", p.Namespace, err)
	}
	s.configs = configs.Items

	machines := &bootstrapv1.PoolbootConfigList{}
	ofCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}
	var reader client.Reader = r.Client
	if p.Spec.IsPaused() && p.Annotations[poolv1.PausedConfigurationAnnotation] == "" { // what it hands out is decided once
		reader = r.APIReader
	}
	if err := reader.List(ctx, machines, namespace, ofCluster, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("PoolbootConfigs of Cluster %s: %w", key, err)
	}
	s.unrecorded = slices.ContainsFunc(machines.Items, func(c bootstrapv1.PoolbootConfig) bool {
		return record.LacksConfiguration(&c) && (c.Status.PoolRole == "" || c.Status.PoolRole == p.Spec.PoolRole)
	})
	s.machines = slices.DeleteFunc(machines.Items, func(c bootstrapv1.PoolbootConfig) bool {
		role, isAsFound := c.Status.PoolRole, record.IsAsFound(&c)
		if role != "" && (role != p.Spec.PoolRole || isAsFound) && s.cache.joined.Has(c.Name) {
			s.moved++
		}
		return role != p.Spec.PoolRole || isAsFound
	})
	return s, nil
}

// render sets the rendered config, or the problem that prevents it.
func (s *scope) render() {
	if s.cluster == nil {
		s.problem = &problem{poolv1.ClusterNotFoundReason, fmt.Sprintf(
			"Cluster %s/%s does not exist: create it, or create the pool again with the clusterName of an existing Cluster", s.pool.Namespace, s.pool.Spec.ClusterName)}
		return
	}
	var err error
	var notFound *pool.NotFoundError
	var duplicate *pool.DuplicateError
	switch s.rendered, err = s.cache.render(s); {
	case errors.As(err, &duplicate):
		s.problem = &problem{poolv1.DuplicateRoleReason, fmt.Sprintf("Cluster %s: %s", s.cluster.Name, err)}
	case errors.As(err, &notFound):
		s.problem = &problem{poolv1.WorkerPoolMissingReason, fmt.Sprintf(
			"Cluster %s has no MachineConfigPool with role %s, from which this pool inherits: create it", s.cluster.Name, poolv1.RoleWorker)}
	case err != nil:
		s.problem = &problem{poolv1.RenderFailedReason, err.Error() + "; correct this, and the pool is rendered again"}
	}
}
