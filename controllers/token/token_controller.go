// Package token guards the tokens with which hosts get their configuration from the config server. It expires a token
// whose host does not join in time after it was provisioned, reports the use of a token from a second address, and
// records the addresses to which a token is bound. The poolbootconfig controller creates tokens, and the node
// controller revokes a token when its Node is Ready.
package token

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// action is the action in the events of this controller.
const action = "GuardToken"

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles the tokens of PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client
	// APIReader reads from the API server before a token expires, which cannot be undone.
	APIReader client.Reader
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder

	// Lifetime is how long a token is valid after its host was provisioned or, if that is later, after it was rotated.
	// Zero means that tokens do not expire.
	Lifetime time.Duration
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// watchHardware starts the watch on HardwareData once. SetupWithManager sets it.
	watchHardware func() error
	// written tracks the PoolbootConfigs that this controller updated.
	written ownwrites.Tracker
	// duplicates caches the reported pairs of PoolbootConfigs with the same pointer id, [2]types.UID → nil.
	duplicates *lru.Cache
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil {
		return errors.New("token controller: Client and APIReader must be set")
	}
	r.Recorder, r.duplicates = mgr.GetEventRecorder("token-controller"), lru.New(maxDuplicates)
	if err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, pointerIndex, pointerOf); err != nil {
		return err
	}
	controller, err := ctrl.NewControllerManagedBy(mgr).
		Named("token").
		For(&bootstrapv1.PoolbootConfig{}).
		WithOptions(options).
		Build(r)
	if err != nil {
		return err
	}
	// watch starts a watch on a kind of Metal3 after it is installed.
	watch := func(kind string, object client.Object, configs func(context.Context, client.Reader, client.Object) []ctrl.Request) error {
		return latecrd.WhenServed(mgr, "token", bmov1alpha1.GroupVersion.WithKind(kind), func() error {
			return controller.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []ctrl.Request {
				return configs(ctx, r.Client, object)
			})))
		})
	}
	r.watchHardware = sync.OnceValue(func() error { return watch("HardwareData", &bmov1alpha1.HardwareData{}, workload.ConfigOfHardware) })
	return watch("BareMetalHost", &bmov1alpha1.BareMetalHost{}, workload.ConfigOfHost)
}

// Reconcile guards the token of a PoolbootConfig.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if err := r.reportDuplicates(ctx, config); err != nil || !hasToken(config) && len(unreported(config)) == 0 {
		return ctrl.Result{}, err
	}
	if r.written.IsStale(config) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	cluster := &clusterv1.Cluster{}
	key := record.ClusterKey(config)
	if err := r.Client.Get(ctx, key, cluster); err != nil || annotations.IsPaused(cluster, config) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, config)
	return status.RetryConflict(ctx, result, err)
}

// reconcile expires a token, and then reports in one patch of the status whether the token is usable and from which
// addresses it was used.
func (r *Reconciler) reconcile(ctx context.Context, config *bootstrapv1.PoolbootConfig) (result ctrl.Result, err error) {
	if hasToken(config) {
		if result, err = r.expire(ctx, config); err != nil {
			return result, err
		}
	}
	before := config.DeepCopy()
	addresses, err := r.setAddresses(ctx, config)
	if err != nil {
		return result, err
	}
	if hasToken(config) {
		r.setUsable(config)
	}
	if err := status.Token.Patch(ctx, r.Client, before, config); err != nil {
		return result, err
	}
	r.written.Record(config)
	r.reportAddresses(config, addresses)
	r.reportUsable(before, config)
	return result, nil
}

// hasToken reports whether a PoolbootConfig has its own token. The token of an enrolled host is that of its Enrollment.
func hasToken(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && record.TokenOf(config).Hash != "" &&
		config.Spec.Enrolled() == nil
}

// expire expires a token whose lifetime is over, or returns when to check it again.
func (r *Reconciler) expire(ctx context.Context, config *bootstrapv1.PoolbootConfig) (ctrl.Result, error) {
	expiration, err := r.expirationTime(ctx, r.Client, config)
	if err != nil || expiration.IsZero() {
		return ctrl.Result{}, err
	}
	if remaining := time.Until(expiration); remaining > 0 {
		return ctrl.Result{RequeueAfter: remaining}, nil
	}
	current := &bootstrapv1.PoolbootConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(config), current); err != nil || !hasToken(current) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if expiration, err := r.expirationTime(ctx, r.APIReader, current); err != nil || expiration.IsZero() || time.Now().Before(expiration) {
		return ctrl.Result{}, err // the cache was stale: its next event triggers a reconcile
	}
	before := current.DeepCopy()
	record.ExpireToken(current)
	if err := r.Client.Patch(ctx, current, status.Locked(before)); err != nil {
		return ctrl.Result{}, err
	}
	r.written.Record(current)
	*config = *current
	return ctrl.Result{}, nil
}

// expirationTime returns when a token expires. It returns zero if the token has expired, has no lifetime or is about to
// be rotated, or if its host is not provisioned.
func (r *Reconciler) expirationTime(ctx context.Context, c client.Reader, config *bootstrapv1.PoolbootConfig) (time.Time, error) {
	if r.Lifetime == 0 || record.IsTokenExpired(config) || record.IsRotationRequested(config) {
		return time.Time{}, nil
	}
	bmh, err := r.hostOf(ctx, c, config)
	if err != nil || bmh == nil || bmh.State != bmov1alpha1.StateProvisioned || bmh.Object.Status.OperationHistory.Provision.End.IsZero() {
		return time.Time{}, err
	}
	since := bmh.Object.Status.OperationHistory.Provision.End.Time
	if rotated, err := time.Parse(time.RFC3339, config.Annotations[bootstrapv1.TokenRotatedAnnotation]); err == nil && rotated.After(since) {
		since = rotated
	}
	return since.Add(r.Lifetime), nil
}

// hostOf returns the host of a PoolbootConfig, and nil if it has none.
func (r *Reconciler) hostOf(ctx context.Context, c client.Reader, config *bootstrapv1.PoolbootConfig) (bmh *host.Host, err error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	bmh, err = host.ForConfig(ctx, c, config, machine)
	if notReady := (*host.NotReadyError)(nil); errors.As(err, &notReady) {
		return nil, nil
	}
	return bmh, err
}

// setUsable sets the condition TokenUsable. A token that has never been unusable has none.
func (r *Reconciler) setUsable(config *bootstrapv1.PoolbootConfig) {
	usable := metav1.Condition{Type: bootstrapv1.TokenUsableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.TokenLiveReason}
	if record.IsTokenExpired(config) {
		usable.Status, usable.Reason = metav1.ConditionFalse, bootstrapv1.TokenExpiredReason
		usable.Message = fmt.Sprintf("the host did not join within %s after it was provisioned, so its token is no longer valid: %s", r.Lifetime, outlook.HowToRotate(config))
	}
	current := conditions.Get(config, usable.Type)
	if current == nil && usable.Status == metav1.ConditionFalse || current != nil && current.Status != usable.Status {
		conditions.Set(config, usable)
	}
}

// reportUsable reports by an event that a token can no longer be used.
func (r *Reconciler) reportUsable(before, after *bootstrapv1.PoolbootConfig) {
	usable := conditions.Get(after, bootstrapv1.TokenUsableCondition)
	if conditions.IsFalse(after, bootstrapv1.TokenUsableCondition) && !conditions.IsFalse(before, bootstrapv1.TokenUsableCondition) {
		metrics.TokenEvent(after, usable.Reason)
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, usable.Reason, action, "%s", usable.Message)
	}
}
