// Package baremetalhost lets BareMetalHosts boot into pools that no Machine uses and that a person annotated with a
// pool: it makes the PoolbootConfig of each, as long as the host asks for a pool, and points the host's user data to
// the Secret that the config gets. From there on the host is one like any other, and no longer this package's.
package baremetalhost

import (
	"context"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// action is the action in the events of this controller.
const action = "BootHost"

// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles BareMetalHosts that ask for a pool, or did.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: whether a Cluster that the cache does not have is gone.
	APIReader client.Reader
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// reported has the finding that was last reported of a host, by the host's UID: each is reported once.
	reported sync.Map
}

// scope is what one Reconcile works on.
type scope struct {
	// host comes from the cache: it is not changed.
	host *bmov1alpha1.BareMetalHost
	// config is the host's record; nil when there is none.
	config *bootstrapv1.PoolbootConfig
	// place is the pool that the host asks for.
	place hostpool.Target
}

// Reconcile brings the record of one host, and the host's user data, in line with what the host asks for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.gather(ctx, request.NamespacedName)
	if err == nil && s != nil {
		err = r.reconcile(ctx, s)
	}
	return status.RetryConflict(ctx, ctrl.Result{}, client.IgnoreNotFound(err))
}

// gather returns nil for a host that is none of this controller's, and for one whose Cluster is paused or moving.
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
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, key, config); err == nil && isOf(config, s.host) {
		s.config = config
	} else if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if s.config == nil && !asks(s.host) {
		return nil, nil
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: s.host.Annotations[poolv1.HostClusterAnnotation]}
	if s.config != nil {
		cluster.Name = record.ClusterName(s.config)
	}
	var err error
	if s.place, err = hostpool.Find(ctx, r.Client, cluster, s.host.Annotations[poolv1.HostPoolAnnotation]); err != nil {
		return nil, err
	}
	if s.place.Cluster == nil && s.config != nil {
		if s.place.Cluster, err = hostpool.LiveCluster(ctx, r.APIReader, cluster); err != nil {
			return nil, err
		}
	}
	if s.place.Cluster != nil && annotations.IsPaused(s.place.Cluster, s.host) {
		return nil, nil
	}
	return s, nil
}

// isOf says whether a config is the record of a BareMetalHost of this name.
func isOf(config *bootstrapv1.PoolbootConfig, host *bmov1alpha1.BareMetalHost) bool {
	return record.HostKindOf(config) == record.BareMetalHost && config.Spec.Host.BareMetalHostName == host.Name
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	switch {
	case s.config == nil:
		return r.create(ctx, s)
	case !s.config.DeletionTimestamp.IsZero():
		if s.clusterStays() {
			return nil // it comes back when it has gone
		}
		return r.takeUserData(ctx, s)
	}
	if why := releaseReason(s); why != "" {
		return r.stepBack(ctx, s, why)
	}
	if err := r.follow(ctx, s); err != nil {
		return err
	}
	return r.point(ctx, s)
}

// clusterStays says whether the host's Cluster exists and is not being deleted.
func (s *scope) clusterStays() bool {
	return s.place.Cluster != nil && s.place.Cluster.DeletionTimestamp.IsZero()
}

// create makes the record of a host that asks for a pool and has none.
func (r *Reconciler) create(ctx context.Context, s *scope) error {
	if !s.host.DeletionTimestamp.IsZero() || s.host.Status.Provisioning.State == bmov1alpha1.StateDeprovisioning ||
		s.place.Cluster != nil && !s.clusterStays() {
		return nil
	}
	if wrong := refusal(s.host, s.place.Cluster); wrong != nil {
		r.warn(s, wrong)
		return nil
	}
	if closed := s.place.Obstacle(); closed != nil {
		r.warn(s, &finding{closed.Reason, closed.Message})
		return nil
	}
	config := s.place.NewConfig(s.host.Name, bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: s.host.Name, BareMetalHostName: s.host.Name})
	config.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "BareMetalHost", Name: s.host.Name, UID: s.host.UID, Controller: new(true),
	}}
	if filter, has := s.host.Labels[clusterv1.WatchLabel]; has {
		config.Labels[clusterv1.WatchLabel] = filter
	}
	err := r.Client.Create(ctx, config)
	if apierrors.IsAlreadyExists(err) {
		current := &bootstrapv1.PoolbootConfig{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(config), current); err != nil || isOf(current, s.host) {
			return err // the cache was behind, and brings the host here again
		}
		r.warn(s, found(poolv1.EventNameTaken, "PoolbootConfig %s stands already and is not this host's: name the host otherwise, or delete the PoolbootConfig", config.Name))
		return nil
	}
	if err == nil {
		r.report(s, corev1.EventTypeNormal, found(poolv1.EventPoolbootConfigCreated, "PoolbootConfig %s stands: the host is to boot into pool %s of Cluster %s",
			config.Name, config.Spec.PoolRole, record.ClusterName(config)))
	}
	return err
}

// stepBack gives a host back as it was: first its user data, as long as that is Poolboot's, then the record goes, and
// with it all that was made for the host except a Node that has joined.
func (r *Reconciler) stepBack(ctx context.Context, s *scope, why string) error {
	if err := r.takeUserData(ctx, s); err != nil {
		return err
	}
	// Of this version: a cache that is behind does not show yet that the record is being deleted, and the event would
	// be sent twice.
	if err := r.Client.Delete(ctx, s.config, client.Preconditions{UID: &s.config.UID, ResourceVersion: &s.config.ResourceVersion}); err != nil {
		return err
	}
	r.report(s, corev1.EventTypeNormal, found(poolv1.EventPoolbootConfigDeleted, "PoolbootConfig %s is deleted: %s", s.config.Name, why))
	return nil
}

// takeUserData takes Poolboot's user data off a host, unless the host is to boot again by the next record, whose Secret
// has the same name.
func (r *Reconciler) takeUserData(ctx context.Context, s *scope) error {
	again := s.clusterStays() && s.host.Spec.ConsumerRef == nil && s.host.Annotations[poolv1.HostPoolAnnotation] != ""
	if again || !isOwn(s.host, s.config) || !s.host.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(s.config, s.host) {
		return nil
	}
	return r.setUserData(ctx, s, nil)
}

// follow lets a host boot into the pool that it asks for now. Once its Node stands, the Node's labels decide.
func (r *Reconciler) follow(ctx context.Context, s *scope) error {
	asked := s.host.Annotations[poolv1.HostPoolAnnotation]
	if asked == s.config.Spec.PoolRole {
		return nil
	}
	if record.HasNode(s.config) || record.HasJoined(s.config) {
		if asked != s.config.Status.PoolRole {
			r.warn(s, found(poolv1.EventPoolFixed, "the host's Node stands in pool %s: to move it to pool %s, change the Node's labels", s.config.Status.PoolRole, asked))
		}
		return nil
	}
	if closed := s.place.Obstacle(); closed != nil {
		r.warn(s, &finding{closed.Reason, closed.Message})
		return nil
	}
	before := s.config.Spec.PoolRole
	moved := s.config.DeepCopy()
	moved.Spec = s.place.NewConfig(s.config.Name, s.config.Spec.Host).Spec
	if err := r.Client.Patch(ctx, moved, status.Locked(s.config)); err != nil {
		return err
	}
	s.config = moved
	r.report(s, corev1.EventTypeNormal, found(poolv1.EventPoolChanged, "the host is to boot into pool %s, not %s", asked, before))
	return nil
}

// point points the host's user data to the data Secret, before the host boots.
func (r *Reconciler) point(ctx context.Context, s *scope) error {
	if s.config.Status.DataSecretName == "" || record.HasNode(s.config) || record.HasJoined(s.config) {
		return nil
	}
	wrong := refusal(s.host, s.place.Cluster)
	if wrong == nil {
		var set bool
		if wrong, set = judgeUserData(s.host, s.config); set {
			if err := r.setUserData(ctx, s, userData(s.config)); err != nil {
				return err
			}
		}
	}
	condition := metav1.Condition{Type: bootstrapv1.UserDataSetCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.UserDataSetReason,
		Message: "spec.userData of BareMetalHost " + s.host.Name + " is Secret " + s.config.Name}
	if wrong != nil {
		r.warn(s, wrong)
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, wrong.reason, wrong.message
	}
	if is := conditions.Get(s.config, condition.Type); is != nil && is.Status == condition.Status && is.Reason == condition.Reason && is.Message == condition.Message {
		return nil
	}
	changed := s.config.DeepCopy()
	conditions.Set(changed, condition)
	return status.BareMetalHost.Patch(ctx, r.Client, s.config, changed)
}

// setUserData writes the one field of a host's spec that Poolboot ever writes. By the lock the host is as it was
// judged: not being provisioned yet, no other one's, and without user data of a person.
func (r *Reconciler) setUserData(ctx context.Context, s *scope, to *corev1.SecretReference) error {
	changed := s.host.DeepCopy()
	changed.Spec.UserData = to
	return r.Client.Patch(ctx, changed, status.Locked(s.host))
}

// warn reports what is wrong with a host, unless that was reported last.
func (r *Reconciler) warn(s *scope, wrong *finding) {
	if before, _ := r.reported.Load(s.host.UID); before != *wrong {
		r.report(s, corev1.EventTypeWarning, wrong)
	}
}

func (r *Reconciler) report(s *scope, kind string, what *finding) {
	r.reported.Store(s.host.UID, *what)
	// A typed nil would be taken for an object.
	if s.config == nil {
		r.Recorder.Eventf(s.host, nil, kind, what.reason, action, "%s", what.message)
		return
	}
	r.Recorder.Eventf(s.host, s.config, kind, what.reason, action, "%s", what.message)
}
