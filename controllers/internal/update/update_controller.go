// Package update makes running hosts follow their pools. It has two halves, which share what the hosts of a pool are to
// run. A reconciler works on pools: it gives slots to the hosts that may be away for an update. Phases of the
// reconciler of hosts act on these slots: they tell hosts what to run, drain their Nodes when their agents ask for it,
// mirror what the agents report, and pre-register a Node before the kubelet of its host starts again.
//
// What a Node says is a claim of its host, and root on the host can write anything. It never decides about another
// host: at most it keeps or frees the host's own slot.
package update

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// action is the action in the events of this package.
	action = "UpdateHost"

	// poolWatchName identifies the watch on Nodes of the pools in the manager.
	poolWatchName = "rollout-nodes"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Updates has the phases of hosts that have joined, and that of their pools: it chooses which of them are next.
type Updates struct {
	scope.Env
	// Secrets is a cache of the metadata of Secrets in the namespace of the config server.
	Secrets cache.Cache

	// poolController receives the events of the watches in workload clusters.
	poolController controller.Controller
	// gateReader returns a reader of the objects of update gates. Init sets it to newGateReader.
	gateReader func(context.Context, client.ObjectKey) (client.Reader, error)
	// unansweredGates remembers since when the object of a gate of a pool could not be read, by the UID of the pool.
	unansweredGates streaks
	// failing remembers since when an API server fails to answer requests for a host or a pool, by its UID.
	failing streaks
	// silent remembers since when agents do not run.
	silent streaks
	// leases remembers the last leaseLook at each leaseKey.
	leases *lru.Cache
	// document builds the assignment of a host. Init sets it to newDocument.
	document func(context.Context, *host, poolContext) ([]byte, error)
	// clock returns the time of day. Nil is time.Now.
	clock func() time.Time
	// revisions remembers the knownRevision of each host by the UID of its PoolbootConfig.
	revisions *lru.Cache
	// origins remembers the pool.Rendered with the origins of a pool by the hash of its inputs.
	origins *lru.Cache
	// assignments remembers the knownAssignment of each host by the UID of its PoolbootConfig.
	assignments *lru.Cache
	// stageClocks remembers the stageClock of each host that is in an update by the UID of its PoolbootConfig.
	stageClocks *lru.Cache
	// rendered remembers the references to rendered configs.
	rendered *assignments.RenderedConfigs
	// readinessRules caches the readiness rules of workload clusters.
	readinessRules workload.ReadinessRules
	// progressInterval is the shortest time between two records of how far the update of a host is.
	progressInterval time.Duration
	// attachments shares lists of the volumes that are attached to the Nodes of a Cluster.
	attachments attachments
	// written tracks the versions of the objects that this package wrote.
	written ownwrites.Tracker
}

// Reconcile does for one host what it and its Node need during and after an update, once the control plane is
// initialized.
func (r *Updates) Reconcile(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
	if !rollout.IsFollowed(s.Config) {
		return r.EndPause(ctx, s)
	}
	if s.Cluster == nil || !conditions.IsTrue(s.Cluster, clusterv1.ClusterControlPlaneInitializedCondition) {
		return ctrl.Result{}, nil
	}
	result, err := r.reconcile(ctx, s)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the cluster source triggers every config when there is a connection
	}
	return result, err
}

func (r *Updates) reconcile(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
	config := s.Config
	restoreHistory(config)
	pools, err := s.Pools(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var in poolContext
	p, missing := pool.OfRole(pools, config.Status.PoolRole)
	if missing == nil {
		in = r.poolContextOf(ctx, s.Cluster, p, pools)
	} else { // what an update began ends without its pool, too
		in = poolContext{cluster: s.Cluster, pool: &poolv1.MachineConfigPool{}, pools: pools, err: missing}
		in.pool.Name = config.Status.PoolRole
	}
	h, err := r.hostOf(ctx, pools, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if r.isStale(h) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	result, err := r.registerAssignFollow(ctx, h, in, missing == nil)
	switch {
	case err == nil:
		r.failing.end(config.UID)
		err = r.keepHistory(ctx, h)
	case !apierrors.IsConflict(err):
		err = errors.Join(err, r.reportFailing(ctx, h, in, err))
	}
	return result, err
}

// isStale reports whether the cache has a Node or a Machine from before this package wrote it last. What was done for
// it would be done again, or undone. The event of the write triggers the next reconcile.
func (r *Updates) isStale(h *host) bool {
	return h.Node != nil && r.written.IsStale(h.Node) || h.Machine != nil && r.written.IsStale(h.Machine)
}

func (r *Updates) registerAssignFollow(ctx context.Context, h *host, in poolContext, hasPool bool) (ctrl.Result, error) {
	if isRegistrationRequested(h.Config) && hasPool {
		if err := r.register(ctx, h, in); err != nil {
			return ctrl.Result{}, err
		}
	}
	if h.awaitsAgent() {
		if err := r.offerAgent(ctx, h, in); err != nil {
			return ctrl.Result{}, err
		}
	}
	untilReboot, err := r.requestReboot(ctx, h, in)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.assign(ctx, h, in); err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.follow(ctx, h, in)
	result.RequeueAfter = earlier(result.RequeueAfter, untilReboot)
	return result, err
}

func (r *Updates) now() time.Time {
	if r.clock == nil {
		return time.Now()
	}
	return r.clock()
}

// hostOf returns the host of a scope, with its Node.
func (r *Updates) hostOf(ctx context.Context, pools []poolv1.MachineConfigPool, s *scope.Scope) (*host, error) {
	node := s.Node
	if node == nil || node.Name != s.Config.Status.NodeRef.Name {
		w, err := workload.Client(ctx, r.ClusterCache, record.ClusterKey(s.Config))
		if err != nil {
			return nil, err
		}
		if node, err = workload.GetIfExists[corev1.Node](ctx, w, client.ObjectKey{Name: s.Config.Status.NodeRef.Name}); err != nil {
			return nil, err
		}
	}
	return &host{Host: rollout.HostOf(pools, s.Config, s.Machine, node), scope: s}, nil
}

// follow drains the Node if the agent asks for it, ends what an update began when it is over, and records what the
// agent reports.
func (r *Updates) follow(ctx context.Context, h *host, in poolContext) (ctrl.Result, error) {
	var result ctrl.Result
	o := outcome{in: in, now: r.now()}
	var err error
	if o.bootedWithAgent, result.RequeueAfter, err = r.awaitStart(ctx, h, o.now); err != nil {
		return result, err
	}
	h.observe(o.now)
	if err := r.findMetal3(ctx, h); err != nil {
		return result, err
	}
	// A request for a reboot is withdrawn before the Node is uncordoned.
	untilRebooted, err := r.rebootByMetal3(ctx, h, o.now)
	if err != nil {
		return result, err
	}
	if h.Report.Silence != "" {
		h.silentFor = r.silent.add(h.Config.UID, o.now)
	} else {
		r.silent.end(h.Config.UID)
	}
	if h.HasAgent() && h.Node != nil {
		w, err := workload.LiveClient(ctx, r.ClusterCache, record.ClusterKey(h.Config))
		if err != nil {
			return result, err
		}
		d := drainer{management: r.Client, workload: w, cluster: in.cluster, pool: in.pool, now: o.now, written: &r.written, attachments: &r.attachments,
			firmware: r.hasFirmwareToApply}
		if pool.IsOfControlPlane(*in.pool) {
			d.controlPlane = func(ctx context.Context, node string) (string, error) {
				plane, err := r.readControlPlane(ctx, in.cluster, w)
				if err != nil {
					return "", err
				}
				return plane.WhyNotWithout(node), nil
			}
		}
		if h.mustDrain() {
			if d.controlPlane != nil {
				if err := r.letDeletedGo(ctx, h, d); err != nil {
					return result, err
				}
			}
			if o.remaining, err = d.drain(ctx, h); err != nil {
				return result, err
			}
			if h.givenUp != "" {
				r.Recorder.Eventf(h.Config, nil, corev1.EventTypeWarning, bootstrapv1.EventDrainTimedOut, action, "%s", rollout.Clean(h.givenUp, maxNote))
			}
			if o.remaining != "" {
				result.RequeueAfter = drainRetry
				if d.controlPlane != nil {
					result.RequeueAfter = rolloutRetry
				}
			}
		}
		if err := d.conclude(ctx, h); err != nil {
			return result, err
		}
		if o.revision, o.err = r.ensureStored(ctx, h, in); isTransient(o.err) {
			return result, o.err
		}
	}
	var untilLooked time.Duration
	if o.deletions, untilLooked, err = r.heldDeletions(ctx, h, in); err != nil {
		return result, err
	}
	result.RequeueAfter = earlier(earlier(result.RequeueAfter, untilRebooted), untilLooked)
	h.setStage(o.now)
	h.observeDrain(o.now)
	if h.Machine != nil {
		isPaused, again := h.remediation(in.pool, o.now)
		if h.Machine, err = r.setRemediation(ctx, h.Machine, isPaused); err != nil {
			return result, err
		}
		result.RequeueAfter = earlier(result.RequeueAfter, again)
	}
	_, answer := h.answer(o.now)
	_, overdue := h.overdue(in.pool, o.now)
	_, staging := h.staging(o)
	result.RequeueAfter = earlier(earlier(result.RequeueAfter, h.hold(in).Wait), earlier(earlier(answer, overdue), staging)) // for the condition
	result.RequeueAfter = earlier(result.RequeueAfter, r.report(ctx, h, o))
	return result, nil
}

// earlier returns the shorter time after which something must be done again. 0 means that it need not.
func earlier(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

// isRefusal reports whether an error is the answer of an API server that refuses a request. That an object has changed
// or is gone is no refusal, because the next reconcile does something else, and neither is a failure of the server.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// failurePatience is how long an API server can fail to answer requests before that is reported.
const failurePatience = time.Minute

// lasts reports whether an error is one that users must see: a refusal, or a failure of the server that lasts although
// it is connected, such as that of a webhook which does not answer. It remembers since when the server fails. The UID
// is that of the host or the pool.
func (r *Updates) lasts(uid types.UID, err error) bool {
	isFailure := apierrors.IsInternalError(err) || workload.IsUnreachable(err)
	if !isFailure || errors.Is(err, clustercache.ErrClusterNotConnected) {
		r.failing.end(uid)
		return isRefusal(err)
	}
	return r.failing.add(uid, r.now()) >= failurePatience
}

// isTransient reports whether an error is that of a request, and not of what a user wrote. Such a request is retried.
// A rendered config that was deleted is also created again.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	return workload.IsUnreachable(err) || errors.As(err, &status)
}

// runsDesired reports whether the host has what is recorded for it.
func (h *host) runsDesired() bool {
	return h.Config.Status.Update.Desired.Name != "" && h.Told() == h.Desired() && h.Report.IsDone(h.Desired())
}

// ensureStored returns the revision of what a host should run. If the Secret with its assignment is missing, or
// verifies its certificate with another CA, it is written again, also if a crash separated it from the record. A host
// that has its revision needs the Secret too, to register its Node again. If the document that is recorded can't be
// built any more, the host gets the next one when it is told to have it.
func (r *Updates) ensureStored(ctx context.Context, h *host, in poolContext) (string, error) {
	revision, err := r.revisionOf(ctx, h, in)
	if h.Desired() == "" || len(in.facts.CA) == 0 { // a host that must be adopted has what is stored
		return revision, err
	}
	stored, failed := r.knownStoredOf(ctx, h.Config)
	switch {
	case failed != nil:
		return revision, failed
	case err == nil && (stored == nil || stored.revision != h.Desired() && revision == h.Desired() && stored.revision != h.Node.Annotations[agentv1.NextAnnotation]):
		t, err := r.targetOf(ctx, h, in)
		if err != nil {
			return revision, err
		}
		return revision, r.store(ctx, h.Config, t)
	case stored != nil && string(stored.clientCA) != string(in.facts.CA): // also if there is no target
		if failed := r.storeClientCA(ctx, h.Config, in.facts.CA); failed != nil {
			return revision, failed
		}
	}
	return revision, err
}

// storeClientCA changes the CA that verifies the client certificate of a host.
func (r *Updates) storeClientCA(ctx context.Context, config *bootstrapv1.PoolbootConfig, clientCA []byte) error {
	stored, err := r.storedOf(ctx, config)
	if err != nil || stored == nil {
		return err
	}
	stored.clientCA = clientCA
	return r.store(ctx, config, *stored)
}

// report records what the agent reports: the rendered config that the host runs now, the stage of its update, and the
// condition Updated. It returns when to record what it leaves out for now, or 0.
func (r *Updates) report(ctx context.Context, h *host, o outcome) time.Duration {
	predicted := r.predicted(ctx, h, o.in)
	if h.runsDesired() {
		h.Config.Status.Boot.ServedConfiguration = h.Config.Status.Update.Desired
	}
	if h.IsDoneWith(h.Config.Status.Update.Slot) {
		h.Config.Status.Update.Slot = ""
	}
	if o.err == nil && o.revision == h.Desired() && !record.IsPreview(h.Config) { // also if the record was lost
		h.Config.Status.Update.Restart = o.in.pool.Spec.Updates.Restart.ID
	}
	h.origins = func(text string) string { return r.originsOf(ctx, h, o.in, text) }
	if condition := h.updated(o); condition != nil {
		conditions.Set(h.Config, *condition)
	}
	h.stages = r.clockStages(h, o.now)
	h.setHistory(o.now)
	if wait := progressWait(h.scope.Before(), h.Config, r.progressInterval, o.now); wait > 0 {
		h.scope.Read(h.scope.Before())
		h.Config = h.scope.Config
		return wait
	}
	h.scope.Report(func(before, after *bootstrapv1.PoolbootConfig) {
		r.reportChanges(h, before, after)
		r.comparePrediction(h, predicted)
	})
	return 0
}

// maxNote is the maximum size of the note of an event in bytes. The API server refuses an event with a longer one.
const maxNote = 1024

// reportChanges counts the end of an update, and creates events for it and for what is wrong with the host.
func (r *Updates) reportChanges(h *host, before, after *bootstrapv1.PoolbootConfig) {
	old, condition := conditions.Get(before, bootstrapv1.UpdatedCondition), conditions.Get(after, bootstrapv1.UpdatedCondition)
	if condition == nil {
		return
	}
	if result := h.result(after); result != "" && before.Status.Update.Stage != "" {
		metrics.UpdateEnded(after, string(result))
	}
	if before.Status.Update.DrainTimedOutTime == nil && after.Status.Update.DrainTimedOutTime != nil {
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, bootstrapv1.EventDrainTimedOut, action, "%s", rollout.Clean("Node "+h.Node.Name+" is not drained. "+h.lateDrain, maxNote))
	}
	switch isNew := old == nil || old.Status != condition.Status || old.Reason != condition.Reason; {
	case isNew && outlook.IsWrong(condition):
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, condition.Reason, action, "%s", rollout.Clean(condition.Message, maxNote))
	case isNew && condition.Status == metav1.ConditionTrue && old != nil && old.Status == metav1.ConditionFalse:
		r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, bootstrapv1.EventUpdated, action, "%s", rollout.Clean(condition.Message, maxNote))
	}
}
