// Package enrollment admits hosts that have no Machine: it publishes what an enrollment token allows, judges the hosts that
// the config server says have asked, and makes the PoolbootConfig of each that it admits. From there on the host is one
// like any other, and no longer this package's. The tokens themselves stay in their Secrets.
package enrollment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/hostpool"
)

// conflictRetry is when to look again after the config server or somebody else wrote first.
const conflictRetry = 200 * time.Millisecond

// unreadableRetry is when to look again for Nodes that could not be read. A connection that is back is told of sooner.
const unreadableRetry = 30 * time.Second

// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=enrollments,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=enrollments/status,verbs=patch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles enrollments.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: the Secret with the token, and whether a name is taken.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// ServerURL is the config server's address as hosts reach it, https://host:port without a path.
	ServerURL string
	// ServerCA returns the PEM certificates by which hosts verify the config server; nothing when hosts know them.
	ServerCA func() ([]byte, error)
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
	// Now is the clock; time.Now unless set.
	Now func() time.Time
}

// scope is what one Reconcile works on.
type scope struct {
	// secret holds the token, read live.
	secret *corev1.Secret
	// enrollment is kept current by every write to it.
	enrollment *poolv1.Enrollment
	// wrong is what is wrong with the Secret; nil when nothing is.
	wrong error
	// place is what hosts are admitted to.
	place hostpool.Place
	// closed is why nobody is admitted now; nil when the pool takes hosts.
	closed *hostpool.Obstacle
	// unreadable is why Nodes of the workload cluster can't be read; nil as long as nothing failed.
	unreadable error
	now        time.Time
}

// Reconcile publishes one token and decides on those who came with it. Requests of one token are decided one after the
// other, and each admission is written under a lock on the one object that lists them: so there are never more than the
// token allows.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, request.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		ctrl.LoggerFrom(ctx).V(4).Info("Somebody else wrote first, looking again", "error", err.Error())
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	s, err := r.gather(ctx, key)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	if err := r.publish(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.rebind(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	s.closed = s.obstacle()
	status := s.enrollment.Status.DeepCopy()
	for _, name := range s.waitingNames() {
		if err := r.decide(ctx, s, name, status.Requests); err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.writeStatus(ctx, s, status)
}

// gather reads a token's Secret, its Enrollment and what it admits to; nil when they are not this manager's to work on.
func (r *Reconciler) gather(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{secret: &corev1.Secret{}, now: r.Now()}
	if err := r.APIReader.Get(ctx, key, s.secret); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	enrollment := &poolv1.Enrollment{}
	if err := r.Client.Get(ctx, key, enrollment); err == nil {
		s.enrollment = enrollment
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	stands := s.secret.Name != "" && s.secret.DeletionTimestamp.IsZero() && s.secret.Type == poolv1.EnrollmentTokenType
	clusterName := s.secret.Labels[clusterv1.ClusterNameLabel]
	switch {
	case !stands && s.enrollment == nil:
		return nil, nil
	case !stands:
		s.wrong, clusterName = errors.New("the Secret does not exist"), s.enrollment.Spec.ClusterName
	case s.enrollment != nil && !metav1.IsControlledBy(s.enrollment, s.secret):
		return nil, fmt.Errorf("enrollment %s belongs to an earlier Secret of that name: it goes with that one", key)
	}
	if stands && r.WatchFilterValue != "" && !labels.HasWatchLabel(s.secret, r.WatchFilterValue) {
		return nil, nil
	}
	return r.gatherPool(ctx, s, client.ObjectKey{Namespace: key.Namespace, Name: clusterName})
}

func (r *Reconciler) gatherPool(ctx context.Context, s *scope, key client.ObjectKey) (_ *scope, err error) {
	if s.place, err = hostpool.Find(ctx, r.Client, key, string(s.secret.Data[poolv1.EnrollmentRoleKey])); err != nil {
		return nil, err
	}
	if s.place.Cluster == nil && s.enrollment != nil {
		if s.place.Cluster, err = hostpool.LiveCluster(ctx, r.APIReader, key); err != nil {
			return nil, err
		}
	}
	if s.place.Cluster != nil && annotations.IsPaused(s.place.Cluster, s.secret) {
		return nil, nil
	}
	if s.enrollment != nil && (s.place.Cluster == nil || hostpool.IsOfEarlier(s.enrollment, s.place.Cluster)) {
		return nil, r.end(ctx, s)
	}
	if s.place.Cluster == nil && s.enrollment == nil {
		// Without its Cluster it can admit nobody. Made now it would be made again each time that clusterctl move deletes the
		// Cluster before the Secret.
		r.Recorder.Eventf(s.secret, nil, corev1.EventTypeWarning, poolv1.EnrollmentPoolNotFoundReason, action,
			"Cluster %s, which the label %s names, does not exist: there is no Enrollment until it does", key.Name, clusterv1.ClusterNameLabel)
		return nil, nil
	}
	return s, nil
}

// end deletes the Enrollment of a Cluster that is gone. The Secret is its owner, and a person's: it stays, and admits hosts to a Cluster of
// the same name if there is one some day, by a new Enrollment that has admitted nobody. The garbage collector can't do that: an object
// with two owners stays as long as one of them does.
func (r *Reconciler) end(ctx context.Context, s *scope) error {
	if err := r.Client.Delete(ctx, s.enrollment, client.Preconditions{UID: &s.enrollment.UID}); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Recorder.Eventf(s.enrollment, nil, corev1.EventTypeNormal, poolv1.EventEnrollmentDeleted, action,
		"Enrollment %s is deleted with Cluster %s, which it admitted hosts to", s.enrollment.Name, s.enrollment.Spec.ClusterName)
	return nil
}

// publish brings the Enrollment's spec in line with the Secret. Whom it admitted stays.
func (r *Reconciler) publish(ctx context.Context, s *scope) error {
	var spec poolv1.EnrollmentSpec
	if s.wrong == nil {
		spec, s.wrong = enroll.Read(s.secret)
	}
	if s.enrollment == nil {
		s.enrollment = &poolv1.Enrollment{
			ObjectMeta: metav1.ObjectMeta{
				Name: s.secret.Name, Namespace: s.secret.Namespace, Labels: s.labels(),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: s.secret.Name, UID: s.secret.UID, Controller: new(true)}},
			},
			Spec: spec,
		}
		return r.Client.Create(ctx, s.enrollment)
	}
	if s.wrong != nil { // dead, and still known by what it was
		spec = *s.enrollment.Spec.DeepCopy()
		spec.TokenSHA256, spec.SecretUID = "", ""
	}
	spec.Admitted = s.enrollment.Spec.Admitted
	return r.writeSpec(ctx, s, spec)
}

// rebind binds the records of admitted hosts to the Secret as it is now, if it holds the token that they came with: clusterctl move
// and backups make it anew, with another UID. Until that is done the config server tells these hosts to ask again.
func (r *Reconciler) rebind(ctx context.Context, s *scope) error {
	if s.wrong != nil {
		return nil //nolint:nilerr // the status says what is wrong with the Secret
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(s.secret.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	owner := hostaccess.Enrollment(client.ObjectKeyFromObject(s.secret), s.secret.UID)
	for i := range configs.Items {
		config := &configs.Items[i]
		if !isBoundElsewhere(config, s.secret.Name, s.secret.UID) {
			continue
		}
		bound := config.DeepCopy()
		maps.Copy(bound.Annotations, owner.Rebind(hostaccess.Read(config.Annotations), string(s.secret.Data[poolv1.EnrollmentTokenKey])))
		if maps.Equal(bound.Annotations, config.Annotations) {
			continue // it came with another token
		}
		if err := r.Client.Patch(ctx, bound, client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// isBoundElsewhere says whether a config is that of a host which an enrollment admitted, and its token is bound to another Secret
// than the one of that UID.
func isBoundElsewhere(config *bootstrapv1.PoolbootConfig, enrollment string, secret types.UID) bool {
	recorded := hostaccess.Read(config.Annotations)
	return config.Annotations[bootstrapv1.EnrollmentAnnotation] == enrollment && recorded.Hash != "" && recorded.UID != secret
}

// labels are those that what belongs to the token has from its Secret.
func (s *scope) labels() map[string]string {
	l := map[string]string{clusterv1.ClusterNameLabel: s.secret.Labels[clusterv1.ClusterNameLabel]}
	if filter, has := s.secret.Labels[clusterv1.WatchLabel]; has {
		l[clusterv1.WatchLabel] = filter
	}
	return l
}

func (r *Reconciler) writeSpec(ctx context.Context, s *scope, spec poolv1.EnrollmentSpec) error {
	if equality.Semantic.DeepEqual(s.enrollment.Spec, spec) {
		return nil
	}
	written := s.enrollment.DeepCopy()
	written.Spec = spec
	if err := r.Client.Patch(ctx, written, client.MergeFromWithOptions(s.enrollment.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	s.enrollment = written
	return nil
}

// obstacle returns why the token admits nobody now.
func (s *scope) obstacle() *hostpool.Obstacle {
	switch {
	case s.wrong != nil:
		return &hostpool.Obstacle{Reason: poolv1.EnrollmentInvalidReason, Message: fmt.Sprintf("Secret %s: %s", s.enrollment.Name, s.wrong)}
	case !s.now.Before(s.enrollment.Spec.ExpirationTime.Time):
		return &hostpool.Obstacle{Reason: poolv1.EnrollmentExpiredReason, Message: "the token has expired: delete its Secret and make a new one"}
	}
	return s.place.Obstacle()
}

// waitingNames are the names that hosts ask for and that are to be decided on: first come, first served.
func (s *scope) waitingNames() []string {
	requests := s.enrollment.Status.Requests
	names := make([]string, 0, len(requests))
	for name := range requests {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if order := requests[a].RequestedTime.Compare(requests[b].RequestedTime.Time); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
	return names
}
