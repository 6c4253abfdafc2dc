// Package poolbootconfig reconciles PoolbootConfigs according to the Cluster API contract for bootstrap providers: it
// decides the pool, creates the bootstrap data Secret, guards its token, computes Ready, and cleans up when a config is
// deleted. The boot controller takes over when the host requests its configuration, and the node controller when a
// kubelet has registered.
package poolbootconfig

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/pause"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools;machineconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads from the API server: the data Secret, whose token must never be generated twice, and what a token
	// depends on before it expires, which cannot be undone.
	APIReader client.Reader
	// Secrets reads from a cache whether a data Secret exists. If it is nil, SetupWithManager sets the manager's cache,
	// which contains the Secrets with the label of a Cluster, without their data.
	Secrets client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder creates events. If it is nil, SetupWithManager sets the manager's recorder.
	Recorder events.EventRecorder

	// ServerURL is the address of the config server as hosts reach it: https://host:port without a path.
	ServerURL string
	// ServerCA returns the PEM certificates with which hosts verify the config server, or nothing if hosts already
	// trust it.
	ServerCA func() ([]byte, error)
	// OverlayNamespace is the namespace of the overlay Secrets: that of the config server.
	OverlayNamespace string
	// TokenLifetime is how long a token is valid after its host was provisioned or, if that is later, after it was
	// rotated. Zero means that tokens do not expire.
	TokenLifetime time.Duration
	// SyncedLabels are the regular expressions of Cluster API's flag --additional-sync-machine-labels.
	SyncedLabels []*regexp.Regexp
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// watchHardware starts the watch on HardwareData once. SetupWithManager sets it.
	watchHardware func() error
	// duplicates caches the reported pairs of PoolbootConfigs with the same pointer id, [2]types.UID → nil.
	duplicates *lru.Cache
	// approval remembers which workload clusters leave the approval of certificates to Poolboot.
	approval workload.ApprovalChecker
	// written tracks the versions of PoolbootConfigs that this controller wrote.
	written ownwrites.Tracker
}

// scope is the state of one Reconcile.
type scope struct {
	// config is the desired PoolbootConfig, and before is the one in the API server.
	config, before *bootstrapv1.PoolbootConfig
	// machine is the owner of the config, or nil without one, for example for a host without a Machine.
	machine *clusterv1.Machine
	// cluster is nil if it does not exist.
	cluster *clusterv1.Cluster
	// pools are the pools of the cluster.
	pools []poolv1.MachineConfigPool
	// inline is the inline data Secret of the config, if it exists and its content is not recorded.
	inline *corev1.Secret
	// addresses are those from which the use of the token is to be reported.
	addresses reportableAddresses
}

// Reconcile reconciles one PoolbootConfig.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, req.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if err := r.reportDuplicates(ctx, config); err != nil {
		return ctrl.Result{}, err
	}
	if r.written.IsStale(config) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	machine, cluster, err := r.owners(ctx, config)
	if err != nil {
		return ctrl.Result{}, err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Machine", klog.KObj(machine), "Cluster", klog.KObj(cluster))
	ctx = ctrl.LoggerInto(ctx, log)

	if machine == nil && isAwaitingMachine(config) {
		return ctrl.Result{}, nil
	}
	if needsFinalizer(config) {
		if added, err := finalizers.EnsureFinalizer(ctx, r.Client, config, bootstrapv1.Finalizer); err != nil || added {
			return ctrl.Result{}, err
		}
	}
	s := &scope{config: config, before: config.DeepCopy(), machine: machine, cluster: cluster}
	if isPaused, requeue, err := pause.EnsureCondition(ctx, r.Client, s.cluster, s.config); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	result, err := r.reconcile(ctx, s)
	err = errors.Join(err, r.finish(ctx, s, err == nil))
	return status.RetryConflict(ctx, result, err)
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.config.DeletionTimestamp.IsZero() {
		return r.delete(ctx, s)
	}
	expiry, err := r.guardToken(ctx, s)
	result, dataErr := r.reconcileDataSecret(ctx, s) // also if the host of the token cannot be read
	return util.LowestNonZeroResult(expiry, result), errors.Join(err, dataErr)
}

// reconcileDataSecret decides the pool, and creates the data Secret or rotates its token.
func (r *Reconciler) reconcileDataSecret(ctx context.Context, s *scope) (ctrl.Result, error) {
	obstacle := obstacle(s.config, s.machine, s.cluster)
	if obstacle != nil && (outlook.IsWrong(obstacle) || !canHaveDataSecret(s)) {
		conditions.Set(s.config, *obstacle)
		return ctrl.Result{}, nil
	}
	if err := r.decidePool(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if record.IsRotationRequested(s.config) && (isDataSecretRecorded(s.config) || notRotatable(s.config) != "") {
		if err := r.rotateToken(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	if record.IsEnrolled(s.config) {
		conditions.Set(s.config, dataSecretCondition(metav1.ConditionTrue, bootstrapv1.HostEnrolledReason,
			"the host was admitted by Enrollment %s and needs no other token", s.config.Spec.EnrollmentName()))
		return ctrl.Result{}, nil
	}
	if isDataSecretRecorded(s.config) && (s.config.Spec.IsInline() || isTokenBound(s.config)) {
		missing, err := r.mustReadDataSecret(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !missing {
			recordDataSecret(s.config, s.config.Status.DataSecretName)
			return ctrl.Result{}, nil
		}
	}
	return r.ensureDataSecret(ctx, s, obstacle)
}

// owners returns the Machine that owns a config, and its Cluster. Each is nil if it does not exist. The Cluster of a
// config whose Machine is already deleted is found by the label of the config.
func (r *Reconciler) owners(ctx context.Context, config *bootstrapv1.PoolbootConfig) (*clusterv1.Machine, *clusterv1.Cluster, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	}
	name := clusterNameOf(config, machine)
	if name == "" {
		return machine, nil, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: name}, cluster); err != nil {
		return machine, nil, client.IgnoreNotFound(err)
	}
	return machine, cluster, nil
}

// clusterNameOf returns the name of a config's Cluster, or "" if it is unknown. The Machine takes precedence over the
// label.
func clusterNameOf(config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine) string {
	if machine != nil {
		return machine.Spec.ClusterName
	}
	return record.ClusterName(config)
}

// finish computes Ready and writes what changed in the status.
func (r *Reconciler) finish(ctx context.Context, s *scope, observed bool) error {
	if !s.config.DeletionTimestamp.IsZero() && !slices.Contains(s.config.Finalizers, bootstrapv1.Finalizer) {
		return nil // deleted
	}
	setIgnitionSucceeded(s.config)
	r.setTokenUsable(s.config)
	conditions.Set(s.config, outlook.Ready(s.config))
	if observed {
		s.config.Status.ObservedGeneration = s.config.Generation
	}
	before := s.before
	if err := r.writeStatus(ctx, s); err != nil {
		return err
	}
	r.reportChanges(before, s.config)
	r.reportIgnition(before, s.config)
	r.reportAddresses(s.config, s.addresses)
	r.reportUsable(before, s.config)
	return nil
}

// event creates an event about a config.
func (r *Reconciler) event(config *bootstrapv1.PoolbootConfig, kind, reason, action, note string, args ...any) {
	r.Recorder.Eventf(config, nil, kind, reason, action, note, args...)
}

// reportChanges creates the events for a change of the status: a pool that was decided for an existing data Secret,
// what this controller finds wrong, and that it is resolved.
func (r *Reconciler) reportChanges(before, after *bootstrapv1.PoolbootConfig) {
	hasPassed := before.Status.DataSecretName == "" && !conditions.IsTrue(before, bootstrapv1.DataSecretAvailableCondition) &&
		conditions.IsTrue(after, bootstrapv1.DataSecretAvailableCondition)
	if hasPassed {
		metrics.StagePassed(after, record.StagePending)
		if outlook.IsWrong(conditions.Get(before, bootstrapv1.DataSecretAvailableCondition)) {
			r.event(after, corev1.EventTypeNormal, bootstrapv1.EventDataSecretCreated, "CreateSecret", "Secret %s contains the bootstrap data: %s",
				after.Status.DataSecretName, conditions.GetMessage(after, bootstrapv1.PoolDecidedCondition))
		}
	}
	isDecided := conditions.IsTrue(after, bootstrapv1.PoolDecidedCondition) &&
		(outlook.IsWrong(conditions.Get(before, bootstrapv1.PoolDecidedCondition)) || after.Status.PoolRole != before.Status.PoolRole)
	if isDecided && !hasPassed {
		r.event(after, corev1.EventTypeNormal, bootstrapv1.EventPoolDecided, "Decide", "%s", conditions.GetMessage(after, bootstrapv1.PoolDecidedCondition))
	}
	for _, kind := range []string{bootstrapv1.PoolDecidedCondition, bootstrapv1.DataSecretAvailableCondition} {
		old, current := conditions.Get(before, kind), conditions.Get(after, kind)
		if !outlook.IsWrong(current) || kind == bootstrapv1.DataSecretAvailableCondition &&
			current.Reason == conditions.GetReason(after, bootstrapv1.PoolDecidedCondition) {
			continue // without a pool there is no Secret: one event reports both
		}
		isNew := old == nil || old.Status != current.Status || old.Reason != current.Reason
		if isNew {
			if current.Reason == bootstrapv1.PoolConflictReason && kind == bootstrapv1.PoolDecidedCondition {
				metrics.PoolConflictOfConfig(after, metrics.ConflictMachine)
			}
			metrics.StageBlocked(after, record.StagePending, current.Reason)
		}
		if isNew || old.Message != current.Message {
			r.event(after, corev1.EventTypeWarning, current.Reason, kind, "%s", current.Message)
		}
	}
}
