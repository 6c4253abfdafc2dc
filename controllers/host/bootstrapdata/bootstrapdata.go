// Package bootstrapdata has the phases of a host that need no workload cluster: they decide the pool, create the
// bootstrap data Secret according to the Cluster API contract for bootstrap providers, guard its token, and clean up
// when a PoolbootConfig is deleted.
package bootstrapdata

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Phases reconcile the bootstrap data of hosts.
type Phases struct {
	scope.Env
	// Secrets reads from a cache whether a data Secret exists. It is the manager's cache, which contains the Secrets
	// with the label of a Cluster, without their data.
	Secrets client.Reader

	// duplicates caches the reported pairs of PoolbootConfigs with the same pointer id, [2]types.UID → nil.
	duplicates *lru.Cache
	// approval remembers which workload clusters leave the approval of certificates to Poolboot.
	approval workload.ApprovalChecker
}

// Init sets what the phases remember.
func (r *Phases) Init() { r.duplicates = lru.New(maxDuplicates) }

// IndexPointers adds the index of PoolbootConfigs that the phases need to a cache.
func IndexPointers(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &bootstrapv1.PoolbootConfig{}, pointerIndex, pointerOf)
}

// state is the state of the phases in one reconcile.
type state struct {
	*scope.Scope
	// pools are the pools of the cluster.
	pools []poolv1.MachineConfigPool
	// inline is the inline data Secret of the config, if it exists and its content is not recorded.
	inline *corev1.Secret
}

// Reconcile guards the token, decides the pool, and creates the data Secret or rotates its token. It also creates the
// data Secret if the host of the token cannot be read.
func (r *Phases) Reconcile(ctx context.Context, of *scope.Scope) (ctrl.Result, error) {
	s := &state{Scope: of}
	s.Report(r.reportChanges)
	expiry, err := r.guardToken(ctx, s)
	result, dataErr := r.reconcileDataSecret(ctx, s)
	setIgnitionSucceeded(s.Config)
	setVersionsFit(s.Config)
	r.setTokenUsable(s.Config)
	return util.LowestNonZeroResult(expiry, result), errors.Join(err, dataErr)
}

// reconcileDataSecret decides the pool, and creates the data Secret or rotates its token.
func (r *Phases) reconcileDataSecret(ctx context.Context, s *state) (ctrl.Result, error) {
	obstacle := obstacle(s.Scope)
	if obstacle != nil && (outlook.IsWrong(obstacle) || !canHaveDataSecret(s)) {
		conditions.Set(s.Config, *obstacle)
		return ctrl.Result{}, nil
	}
	if err := r.decidePool(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if record.IsRotationRequested(s.Config) && (isDataSecretRecorded(s.Config) || notRotatable(s.Config) != "") {
		if err := r.rotateToken(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	if record.IsAdopted(s.Config) {
		conditions.Set(s.Config, dataSecretCondition(metav1.ConditionTrue, bootstrapv1.HostAdoptedReason, "the host was adopted and does not boot with Poolboot"))
		return ctrl.Result{}, r.recordAdoption(ctx, s)
	}
	if record.IsEnrolled(s.Config) {
		conditions.Set(s.Config, dataSecretCondition(metav1.ConditionTrue, bootstrapv1.HostEnrolledReason,
			"the host was admitted by Enrollment %s and needs no other token", s.Config.Spec.EnrollmentName()))
		return ctrl.Result{}, nil
	}
	if isDataSecretRecorded(s.Config) && (s.Config.Spec.IsInline() || isTokenBound(s.Config)) {
		missing, err := r.mustReadDataSecret(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !missing {
			recordDataSecret(s.Config, s.Config.Status.DataSecretName)
			return ctrl.Result{}, nil
		}
	}
	return r.ensureDataSecret(ctx, s, obstacle)
}

// event creates an event about a config.
func (r *Phases) event(config *bootstrapv1.PoolbootConfig, kind, reason, action, note string, args ...any) {
	r.Recorder.Eventf(config, nil, kind, reason, action, note, args...)
}

// reportChanges creates the events for a change of the status: a pool that was decided for an existing data Secret,
// what these phases find wrong, and that it is resolved.
func (r *Phases) reportChanges(before, after *bootstrapv1.PoolbootConfig) {
	r.reportFirstBoot(bootstrapv1.IgnitionSucceededCondition, before, after)
	r.reportFirstBoot(bootstrapv1.VersionsFitCondition, before, after)
	r.reportUsable(before, after)
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

// When a MachineDeployment is scaled up by a thousand, each write to a new PoolbootConfig happens a thousand times.
// IsAwaitingMachine and NeedsFinalizer avoid all writes except the two that its data Secret needs anyway.

// IsAwaitingMachine reports whether a MachineSet has just created a config and is about to create its Machine. If it
// cannot, it deletes the config again. There is nothing to report yet, and a write could conflict with those of Cluster
// API.
func IsAwaitingMachine(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() &&
		util.HasOwner(config.OwnerReferences, clusterv1.GroupVersion.String(), []string{"MachineSet"})
}

// NeedsFinalizer reports whether something exists for a config, or is created next, that is not deleted with it
// automatically. Only then is a finalizer useful. Before the data Secret is recorded, which the config owns, a host
// that must send a request gets nothing.
func NeedsFinalizer(config *bootstrapv1.PoolbootConfig) bool {
	return config.Spec.IsInline() || record.IsEnrolled(config) || record.IsAdopted(config) || config.Status.DataSecretName != ""
}

// decidePool records the pool, or why there is none.
func (r *Phases) decidePool(ctx context.Context, s *state) error {
	if s.Cluster == nil || s.Machine == nil && !record.IsMachineless(s.Config) {
		return nil // this happens only if the data Secret already exists
	}
	var err error
	if s.pools, err = s.Pools(ctx); err != nil {
		return err
	}
	if s.inline, err = r.readInline(ctx, s); err != nil {
		return err
	}
	boot := pool.Boot{Config: s.Config, Machine: s.Machine, Pools: s.pools}
	if s.inline != nil {
		boot.DataSecret = s.inline
	}
	role, condition := decide(boot)
	s.Config.Status.PoolRole = role
	conditions.Set(s.Config, condition)
	return nil
}

// decide returns the pool role to record, or "" for none, and the condition that reports why.
func decide(boot pool.Boot) (string, metav1.Condition) {
	assigned, err := pool.ForBoot(boot)
	condition := metav1.Condition{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionTrue, Reason: string(assigned.Reason)}
	if err != nil {
		condition.Status, condition.Message = metav1.ConditionFalse, err.Error()
		condition.Reason = cmp.Or(outlook.ReasonOf(err), bootstrapv1.PoolConflictReason)
	} else {
		condition.Message = assigned.Message(boot)
	}
	return assigned.Role, condition
}

// isPoolDecided reports whether a boot can continue with the recorded pool.
func isPoolDecided(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.PoolRole != "" && conditions.IsTrue(config, bootstrapv1.PoolDecidedCondition)
}

// patchAnnotations writes annotations, and the finalizer if it is missing, in one patch. It removes annotations without
// a value. Changes of the status are written later.
func (s *state) patchAnnotations(ctx context.Context, annotations map[string]string) error {
	return s.PatchMetadata(ctx, func(config *bootstrapv1.PoolbootConfig) {
		controllerutil.AddFinalizer(config, bootstrapv1.Finalizer)
		for key, value := range annotations {
			if value == "" {
				delete(config.Annotations, key)
			} else {
				metav1.SetMetaDataAnnotation(&config.ObjectMeta, key, value)
			}
		}
	})
}
