// Package baremetalhost boots BareMetalHosts without a Machine into pools. If a BareMetalHost has the annotations for a
// pool and no Machine uses it, this package creates its PoolbootConfig and sets its spec.userData to the data Secret of
// the PoolbootConfig. After that, the boot of the host is the same as that of any other host.
package baremetalhost

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// action is the action in the events of this controller.
const action = "BootHost"

// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles BareMetalHosts that have the annotations for a pool, or had them.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client
	// APIReader reads a Cluster from the API server if the cache does not have it, and whether Secrets exist.
	APIReader client.Reader
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// reported has the reason and message of the last event of each host, by UID.
	reported sync.Map
}

// scope has the objects of one reconcile.
type scope struct {
	// host is an object in the cache and must not be changed.
	host *bmov1alpha1.BareMetalHost
	// config is the PoolbootConfig of the host, nil if there is none.
	config *bootstrapv1.PoolbootConfig
	// target is the pool in the annotations of the host.
	target hostpool.Target
	// isTaken is true if the host has user data that is not Poolboot's.
	isTaken bool
}

// takenInterval is how often it is checked whether the user data of a host that is not Poolboot's still exists. No
// watch reports that the Secret is deleted.
const takenInterval = time.Minute

// Reconcile updates the PoolbootConfig and the user data of a host to match its annotations.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result := ctrl.Result{}
	s, err := r.gather(ctx, request.NamespacedName)
	if err == nil && s != nil {
		if err = r.reconcile(ctx, s); err == nil && s.isTaken {
			result.RequeueAfter = takenInterval
		}
	}
	return status.RetryConflict(ctx, result, client.IgnoreNotFound(err))
}

// gather reads the objects of a reconcile. It returns nil if there is nothing to do: the host has no annotations and no
// PoolbootConfig, or it is paused or being moved.
func (r *Reconciler) gather(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{host: &bmov1alpha1.BareMetalHost{}}
	if err := r.Client.Get(ctx, key, s.host); err != nil {
		return nil, err
	}
	_, paused := s.host.Annotations[bmov1alpha1.PausedAnnotation]
	_, moved := s.host.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	if paused || moved || r.WatchFilterValue != "" && !labels.HasWatchLabel(s.host, r.WatchFilterValue) {
		return nil, nil
	}
	config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.Client, key)
	if err != nil {
		return nil, err
	}
	if config != nil && isConfigOf(config, s.host) {
		s.config = config
	} else if !requestsPool(s.host) {
		return nil, nil
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: s.host.Annotations[poolv1.HostClusterAnnotation]}
	if s.config != nil {
		cluster.Name = record.ClusterName(s.config)
	}
	if s.target, err = hostpool.Find(ctx, r.Client, cluster, s.host.Annotations[poolv1.HostPoolAnnotation]); err != nil {
		return nil, err
	}
	if s.target.Cluster == nil && s.config != nil { // clusterctl move creates both within moments
		if s.target.Cluster, err = workload.GetIfExists[clusterv1.Cluster](ctx, r.APIReader, cluster); err != nil {
			return nil, err
		}
	}
	if s.target.Cluster != nil && annotations.IsPaused(s.target.Cluster, s.host) {
		return nil, nil
	}
	return s, nil
}

// isConfigOf reports whether a PoolbootConfig is that of a BareMetalHost with this name.
func isConfigOf(config *bootstrapv1.PoolbootConfig, host *bmov1alpha1.BareMetalHost) bool {
	return record.HostKindOf(config) == record.BareMetalHost && config.Spec.Host.BareMetalHostName == host.Name
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	switch {
	case s.config == nil:
		return r.create(ctx, s)
	case !s.config.DeletionTimestamp.IsZero():
		if s.clusterExists() {
			return nil // the event of its deletion triggers a reconcile
		}
		return r.removeUserData(ctx, s)
	}
	if why := releaseReason(s); why != "" {
		return r.release(ctx, s, why)
	}
	if err := r.updatePool(ctx, s); err != nil {
		return err
	}
	return r.ensureUserData(ctx, s)
}

// clusterExists reports whether the Cluster exists and is not being deleted.
func (s *scope) clusterExists() bool {
	return s.target.Cluster != nil && s.target.Cluster.DeletionTimestamp.IsZero()
}

// create creates the PoolbootConfig of a host.
func (r *Reconciler) create(ctx context.Context, s *scope) error {
	if !s.host.DeletionTimestamp.IsZero() || s.host.Status.Provisioning.State == bmov1alpha1.StateDeprovisioning ||
		s.target.Cluster != nil && !s.clusterExists() {
		return nil
	}
	if obstacle := cmp.Or(refusalReason(s.host, s.target.Cluster), s.target.Obstacle()); obstacle != nil {
		r.warn(s, obstacle)
		return nil
	}
	config := s.target.NewConfig(s.host.Name, bootstrapv1.HostWithoutMachine{
		Type: bootstrapv1.HostTypeBareMetalHost, NodeName: s.host.Name, BareMetalHostName: s.host.Name,
	}, s.host)
	config.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "BareMetalHost", Name: s.host.Name, UID: s.host.UID, Controller: new(true),
	}}
	err := r.Client.Create(ctx, config)
	if apierrors.IsAlreadyExists(err) {
		current := &bootstrapv1.PoolbootConfig{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(config), current); err != nil || isConfigOf(current, s.host) {
			return err // the cache was stale: its next event triggers a reconcile
		}
		r.warn(s, hostpool.NewObstacle(poolv1.EventNameTaken, "PoolbootConfig %s already exists and does not belong to this host: "+
			"use another name for the host, or delete the PoolbootConfig", config.Name))
		return nil
	}
	if err == nil {
		r.report(s, corev1.EventTypeNormal, poolv1.EventPoolbootConfigCreated,
			"PoolbootConfig %s is created: the host boots into pool %s of Cluster %s",
			config.Name, config.Spec.PoolRole, record.ClusterName(config))
	}
	return err
}

// release removes Poolboot's user data from a host and deletes its PoolbootConfig. The finalizer of the PoolbootConfig
// deletes everything that was created for the host, except a Node that has joined.
func (r *Reconciler) release(ctx context.Context, s *scope, why string) error {
	if err := r.removeUserData(ctx, s); err != nil {
		return err
	}
	// The precondition prevents a second event if the cache does not show the deletion yet.
	if err := r.Client.Delete(ctx, s.config, client.Preconditions{UID: &s.config.UID, ResourceVersion: &s.config.ResourceVersion}); err != nil {
		return err
	}
	r.report(s, corev1.EventTypeNormal, poolv1.EventPoolbootConfigDeleted, "PoolbootConfig %s is deleted: %s", s.config.Name, why)
	return nil
}

// removeUserData removes Poolboot's user data from a host, unless the host boots again with its next PoolbootConfig,
// whose Secret has the same name.
func (r *Reconciler) removeUserData(ctx context.Context, s *scope) error {
	bootsAgain := s.clusterExists() && s.host.Spec.ConsumerRef == nil && s.host.Annotations[poolv1.HostPoolAnnotation] != ""
	if bootsAgain || !hasOwnUserData(s.host, s.config) || !s.host.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(s.config, s.host) {
		return nil
	}
	return r.setUserData(ctx, s, nil)
}

// updatePool updates the pool of a PoolbootConfig to that in the annotations of its host. After the Node exists, the
// labels of the Node decide.
func (r *Reconciler) updatePool(ctx context.Context, s *scope) error {
	role := s.host.Annotations[poolv1.HostPoolAnnotation]
	if role == s.config.Spec.PoolRole {
		return nil
	}
	if record.HasNode(s.config) || record.HasJoined(s.config) {
		if role != s.config.Status.PoolRole {
			r.warn(s, hostpool.NewObstacle(poolv1.EventPoolFixed,
				"the Node of the host is in pool %s: to move it to pool %s, change the Node's labels", s.config.Status.PoolRole, role))
		}
		return nil
	}
	if obstacle := s.target.Obstacle(); obstacle != nil {
		r.warn(s, obstacle)
		return nil
	}
	before := s.config.Spec.PoolRole
	moved := s.config.DeepCopy()
	moved.Spec = s.target.NewConfig(s.config.Name, s.config.Spec.Host, s.host).Spec
	if err := r.Client.Patch(ctx, moved, status.Locked(s.config)); err != nil {
		return err
	}
	s.config = moved
	r.report(s, corev1.EventTypeNormal, poolv1.EventPoolChanged, "the host boots into pool %s instead of %s", role, before)
	return nil
}

// ensureUserData sets the user data of a host to the data Secret before the host boots, and sets the condition
// UserDataSet.
func (r *Reconciler) ensureUserData(ctx context.Context, s *scope) error {
	if s.config.Status.DataSecretName == "" || record.HasNode(s.config) || record.HasJoined(s.config) {
		return nil
	}
	problem := refusalReason(s.host, s.target.Cluster)
	if problem == nil {
		var err error
		if s.isTaken, err = r.isUserDataTaken(ctx, s); err != nil {
			return err
		}
		var set bool
		if problem, set = decideUserData(s.host, s.config, s.isTaken); set {
			if err := r.setUserData(ctx, s, userDataRef(s.config)); err != nil {
				return err
			}
		}
	}
	condition := metav1.Condition{Type: bootstrapv1.UserDataSetCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.UserDataSetReason,
		Message: "spec.userData of BareMetalHost " + s.host.Name + " is Secret " + s.config.Name}
	if problem != nil {
		r.warn(s, problem)
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, problem.Reason, problem.Message
	}
	if current := conditions.Get(s.config, condition.Type); current != nil && current.Status == condition.Status && current.Reason == condition.Reason && current.Message == condition.Message {
		return nil
	}
	changed := s.config.DeepCopy()
	conditions.Set(changed, condition)
	return status.Patch(ctx, r.Client, s.config, changed)
}

// isUserDataTaken reports whether a host has user data that is not Poolboot's. A Secret in the namespace of the host
// that does not exist is none. Other namespaces are not looked at: a user of this one must not learn what is in them.
func (r *Reconciler) isUserDataTaken(ctx context.Context, s *scope) (bool, error) {
	if s.host.Spec.UserData == nil || hasOwnUserData(s.host, s.config) {
		return false, nil
	}
	return barehost.SecretExists(ctx, r.APIReader, s.host, s.host.Spec.UserData)
}

// setUserData writes spec.userData, the only field in the spec of a host that Poolboot writes. The optimistic lock
// ensures that the checks of the host are still valid: it is not being provisioned, has no consumer and no other user
// data.
func (r *Reconciler) setUserData(ctx context.Context, s *scope, to *corev1.SecretReference) error {
	changed := s.host.DeepCopy()
	changed.Spec.UserData = to
	return r.Client.Patch(ctx, changed, status.Locked(s.host))
}

// warn sends a warning about a host, unless it was the last event that was sent.
func (r *Reconciler) warn(s *scope, problem *hostpool.Obstacle) {
	if last, _ := r.reported.Load(s.host.UID); last != *problem {
		r.report(s, corev1.EventTypeWarning, problem.Reason, "%s", problem.Message)
	}
}

// report sends an event about a host.
func (r *Reconciler) report(s *scope, eventType, reason, format string, args ...any) {
	r.reported.Store(s.host.UID, *hostpool.NewObstacle(reason, format, args...))
	var related runtime.Object
	if s.config != nil { // a nil *PoolbootConfig in the interface would not be nil
		related = s.config
	}
	r.Recorder.Eventf(s.host, related, eventType, reason, action, format, args...)
}

// SetupWithManager adds the controller to a manager. The controller starts after Metal3 is installed.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil {
		return errors.New("baremetalhost controller: Client and APIReader must be set")
	}
	r.Recorder = mgr.GetEventRecorder("baremetalhost-controller")
	builder := ctrl.NewControllerManagedBy(mgr).
		Named("baremetalhost").
		For(&bmov1alpha1.BareMetalHost{}).
		Watches(&bootstrapv1.PoolbootConfig{}, handler.EnqueueRequestsFromMapFunc(hostOfConfig)).
		WithOptions(options)
	builder = hostpool.Watches(ctx, builder, r.Client, &bmov1alpha1.BareMetalHostList{}, func(object client.Object) bool {
		host, ok := object.(*bmov1alpha1.BareMetalHost)
		return ok && requestsPool(host)
	})
	return latecrd.WhenServed(mgr, "baremetalhost", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error { return builder.Complete(r) })
}

// hostOfConfig returns a request for the BareMetalHost of a PoolbootConfig.
func hostOfConfig(_ context.Context, object client.Object) []ctrl.Request {
	config, ok := object.(*bootstrapv1.PoolbootConfig)
	if !ok || record.HostKindOf(config) != record.BareMetalHost {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.Host.BareMetalHostName}}}
}
