// Package enrollment admits hosts that have no Machine: it hashes the token of an Enrollment, judges the hosts that the
// config server says have asked, and creates the PoolbootConfig of each that it admits. From there on the host is one
// like any other, and no longer this package's. The tokens themselves stay in their Secrets.
package enrollment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/pause"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// unreadableRetry is when to look again for Nodes that could not be read. A connection that is back is told of sooner.
const unreadableRetry = 30 * time.Second

// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=enrollments,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=enrollments/status,verbs=patch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Enrollments.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: the Secret with the token, and whether a name is taken.
	APIReader client.Reader
	// TokenSecrets tells of changes of the Secrets with tokens; NewTokenSecrets returns one.
	TokenSecrets cache.Cache
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// ServerURL is the config server's address as hosts reach it, https://host:port without a path.
	ServerURL string
	// ServerCA returns the PEM certificates by which hosts verify the config server; nothing when hosts know them.
	ServerCA func() ([]byte, error)
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Enrollments must have; empty means
	// all.
	WatchFilterValue string
	// Now is the clock; time.Now unless set.
	Now func() time.Time
}

// scope is what one Reconcile works on.
type scope struct {
	// enrollment is kept current by every write to it.
	enrollment *poolv1.Enrollment
	// notPaused is the condition Paused of an Enrollment that is not.
	notPaused metav1.Condition
	// token is what the Secret holds; zero when it is not valid.
	token token
	// tokenProblem is why there is no token; nil when there is one.
	tokenProblem *hostpool.Obstacle
	// place is what hosts are admitted to.
	place hostpool.Target
	// closed is why nobody is admitted now; nil when the pool takes hosts.
	closed *hostpool.Obstacle
	// unreadable is why Nodes of the workload cluster can't be read; nil as long as nothing failed.
	unreadable error
	// isSlow says that a Node was read, and that this took so long that the other hosts wait for the next Reconcile.
	isSlow bool
	now    time.Time
}

// token is an enrollment token, as read live from its Secret.
type token struct {
	text   string
	owner  hostaccess.Owner
	sha256 string
	secret types.UID
}

// Reconcile hashes one Enrollment's token and decides on the hosts that presented it. Requests of one Enrollment are
// decided one after the other, and each admission is written under a lock on the one object that lists them: so there
// are never more than it allows.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, request.NamespacedName)
	if apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: status.ConflictRetry}, nil
	}
	return status.RetryConflict(ctx, result, err)
}

func (r *Reconciler) reconcile(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	s, err := r.gather(ctx, key)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	observed := s.enrollment.DeepCopy()
	if isPaused, requeue, err := pause.EnsureCondition(ctx, r.Client, s.place.Cluster, observed); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	s.notPaused = *conditions.Get(observed, clusterv1.PausedCondition)
	for _, step := range []func(context.Context, *scope) error{r.adopt, r.readToken, r.publish, r.rebind} {
		if err := step(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	s.closed = s.obstacle()
	newStatus := s.enrollment.Status.DeepCopy()
	for _, request := range slices.SortedFunc(slices.Values(newStatus.Requests), firstCome) {
		stays, refused, err := r.decide(ctx, s, request)
		if err != nil {
			return ctrl.Result{}, err
		}
		at := slices.IndexFunc(newStatus.Requests, func(r poolv1.EnrollmentRequest) bool { return r.Name == request.Name })
		if stays {
			newStatus.Requests[at].Refused = refused
		} else {
			newStatus.Requests = slices.Delete(newStatus.Requests, at, at+1)
		}
	}
	return r.writeStatus(ctx, s, newStatus)
}

// gather reads an Enrollment and what it admits hosts to; nil when it is not this manager's to work on.
func (r *Reconciler) gather(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{enrollment: &poolv1.Enrollment{}, now: r.Now()}
	if err := r.Client.Get(ctx, key, s.enrollment); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !s.enrollment.DeletionTimestamp.IsZero() || r.WatchFilterValue != "" && !labels.HasWatchLabel(s.enrollment, r.WatchFilterValue) {
		return nil, nil
	}
	spec := s.enrollment.Spec
	var err error
	s.place, err = hostpool.Find(ctx, r.Client, client.ObjectKey{Namespace: key.Namespace, Name: spec.ClusterName}, spec.PoolRole)
	return s, err
}

// adopt makes the Cluster the owner of the Enrollment before a host is admitted: so clusterctl moves the two together,
// and the garbage collector deletes the Enrollment, and whom it admitted, with its Cluster. One that belongs to an
// earlier Cluster of the same name is left to the garbage collector.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	cluster := s.place.Cluster
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() || ownerCluster(s.enrollment) != "" {
		return nil
	}
	written := s.enrollment.DeepCopy()
	written.OwnerReferences = append(written.OwnerReferences, ownedBy(cluster))
	return r.patch(ctx, s, written)
}

// ownerCluster is the UID of the Cluster that owns an Enrollment; empty when none does.
func ownerCluster(enrollment *poolv1.Enrollment) types.UID {
	for _, owner := range enrollment.OwnerReferences {
		if group, _, _ := strings.Cut(owner.APIVersion, "/"); group == clusterv1.GroupVersion.Group && owner.Kind == clusterv1.ClusterKind {
			return owner.UID
		}
	}
	return ""
}

func ownedBy(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind, Name: cluster.Name, UID: cluster.UID}
}

// readToken reads the token live. A Secret of another type counts as missing, and nothing of it is hashed: users who
// may write Enrollments but not read Secrets must learn nothing of them.
func (r *Reconciler) readToken(ctx context.Context, s *scope) error {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: s.enrollment.Namespace, Name: s.enrollment.Spec.TokenSecretRef.Name}
	if err := r.APIReader.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
		return err
	}
	if secret.Name == "" || !secret.DeletionTimestamp.IsZero() || secret.Type != poolv1.EnrollmentTokenType {
		s.tokenProblem = &hostpool.Obstacle{Reason: poolv1.EnrollmentSecretNotFoundReason, Message: fmt.Sprintf(
			"Secret %s of type %s does not exist: create it, with the token in data.%s", key.Name, poolv1.EnrollmentTokenType, poolv1.EnrollmentTokenKey)}
		return nil
	}
	text, err := enroll.Token(secret)
	if err != nil {
		s.tokenProblem = &hostpool.Obstacle{Reason: poolv1.EnrollmentInvalidSecretReason, Message: fmt.Sprintf("Secret %s: %s", key.Name, err)}
		return nil
	}
	owner := hostaccess.Enrollment(client.ObjectKeyFromObject(s.enrollment), secret.UID)
	s.token = token{text: text, owner: owner, sha256: owner.Hash(text), secret: secret.UID}
	return nil
}

// publish writes the token's hash into the status before anything else is decided: a token that ended must not be
// accepted for as long as something else fails.
func (r *Reconciler) publish(ctx context.Context, s *scope) error {
	written := s.enrollment.DeepCopy()
	written.Status.TokenSHA256, written.Status.TokenSecretUID = s.token.sha256, string(s.token.secret)
	return r.patchStatus(ctx, s, written)
}

// rebind binds the records of admitted hosts to the Secret as it is now, if it holds the token that they presented:
// clusterctl move and backups create it again, with another UID. Until that is done the config server tells these hosts
// to ask again.
func (r *Reconciler) rebind(ctx context.Context, s *scope) error {
	if s.token.text == "" {
		return nil
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(s.enrollment.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range configs.Items {
		config := &configs.Items[i]
		if !isBoundElsewhere(config, s.enrollment.Name, s.token.secret) {
			continue
		}
		bound := config.DeepCopy()
		maps.Copy(bound.Annotations, s.token.owner.Rebind(record.TokenOf(config), s.token.text))
		if maps.Equal(bound.Annotations, config.Annotations) {
			continue // it presented another token
		}
		if err := r.Client.Patch(ctx, bound, status.Locked(config)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// isBoundElsewhere says whether a config is that of a host which an Enrollment admitted, and its token is bound to
// another Secret than the one of that UID.
func isBoundElsewhere(config *bootstrapv1.PoolbootConfig, enrollment string, secret types.UID) bool {
	recorded := record.TokenOf(config)
	return config.Spec.EnrollmentName() == enrollment && recorded.Hash != "" && recorded.UID != secret
}

// labels are those that the records of admitted hosts have from the Enrollment.
func (s *scope) labels() map[string]string {
	l := map[string]string{clusterv1.ClusterNameLabel: s.enrollment.Spec.ClusterName}
	if filter, has := s.enrollment.Labels[clusterv1.WatchLabel]; has {
		l[clusterv1.WatchLabel] = filter
	}
	return l
}

// patch writes an Enrollment's metadata and spec, unless it has changed since it was read: users write the spec too.
func (r *Reconciler) patch(ctx context.Context, s *scope, written *poolv1.Enrollment) error {
	if err := r.Client.Patch(ctx, written, status.Locked(s.enrollment)); err != nil {
		return err
	}
	s.enrollment = written
	return nil
}

// obstacle returns why the Enrollment admits nobody now.
func (s *scope) obstacle() *hostpool.Obstacle {
	spec := s.enrollment.Spec
	switch patternErr := enroll.CheckPattern(spec.NamePattern); {
	case s.tokenProblem != nil:
		return s.tokenProblem
	case patternErr != nil:
		return &hostpool.Obstacle{Reason: poolv1.EnrollmentInvalidNamePatternReason, Message: fmt.Sprintf("spec.namePattern: %s", patternErr)}
	case !s.now.Before(spec.ExpirationTime.Time):
		return &hostpool.Obstacle{Reason: poolv1.EnrollmentExpiredReason, Message: "the token expired: set a later spec.expirationTime, or delete the Enrollment and its Secret"}
	case s.place.Cluster != nil && s.place.Cluster.DeletionTimestamp.IsZero() && ownerCluster(s.enrollment) != s.place.Cluster.UID:
		return &hostpool.Obstacle{Reason: poolv1.ClusterNotFoundReason, Message: fmt.Sprintf(
			"this Enrollment belongs to an earlier Cluster %s and is deleted with it: create it again for the Cluster of that name that exists now", spec.ClusterName)}
	}
	return s.place.Obstacle()
}

// firstCome orders requests as they are decided on: first come, first served.
func firstCome(a, b poolv1.EnrollmentRequest) int {
	return cmp.Or(a.RequestedTime.Compare(b.RequestedTime.Time), strings.Compare(a.Name, b.Name))
}
