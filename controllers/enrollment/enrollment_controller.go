// Package enrollment admits hosts without a Machine. It hashes the token of an Enrollment, decides the requests that
// the config server records, and creates the PoolbootConfig of each admitted host. After that, the boot of the host is
// the same as that of any other host. Tokens are only in their Secrets.
package enrollment

import (
	"cmp"
	"context"
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
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/pause"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// nodesRetry is when Nodes that could not be read are read again. A new connection triggers a reconcile sooner.
const nodesRetry = 30 * time.Second

// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Enrollments.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client
	// APIReader reads the Secret with the token and existing PoolbootConfigs from the API server.
	APIReader client.Reader
	// TokenSecrets watches the Secrets with tokens. NewTokenSecrets returns such a cache.
	TokenSecrets cache.Cache
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder

	// ServerURL is the URL of the config server for hosts, https://host:port without a path.
	ServerURL string
	// ServerCA returns the PEM certificates with which hosts verify the config server. It returns nothing if hosts
	// already trust it.
	ServerCA func() ([]byte, error)
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Enrollments must have; empty means
	// all.
	WatchFilterValue string
	// Now returns the current time. SetupWithManager sets it.
	Now func() time.Time
}

// scope has the objects of one reconcile.
type scope struct {
	// enrollment is updated by every write to it.
	enrollment *poolv1.Enrollment
	// notPaused is the condition Paused with the status False.
	notPaused metav1.Condition
	// token is the token in the Secret, zero if it is not valid.
	token token
	// tokenProblem is why there is no valid token, nil if there is one.
	tokenProblem *hostpool.Obstacle
	// target is the pool of the Enrollment.
	target hostpool.Target
	// obstacle is why no host is admitted now, nil if hosts are admitted.
	obstacle *hostpool.Obstacle
	// nodesErr is the first error from reading Nodes of the workload cluster.
	nodesErr error
	// isSlow is true after a slow read of a Node. The other hosts wait for the next reconcile.
	isSlow bool
	// reports are called after the status is written.
	reports []func()
	now     time.Time
}

// token is an enrollment token.
type token struct {
	text   string
	owner  access.Owner
	sha256 string
	secret types.UID
}

// Reconcile hashes the token of an Enrollment and decides the requests of hosts that presented it. It decides the
// requests one after the other, and writes each admission to the Enrollment with an optimistic lock. So it never admits
// more hosts than spec.maxUses allows.
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
	if isPaused, requeue, err := pause.EnsureCondition(ctx, r.Client, s.target.Cluster, observed); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	s.notPaused = *conditions.Get(observed, clusterv1.PausedCondition)
	for _, step := range []func(context.Context, *scope) error{r.adopt, r.readToken, r.writeTokenHash, r.rebind} {
		if err := step(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	s.obstacle = s.findObstacle()
	newStatus := s.enrollment.Status.DeepCopy()
	for _, request := range slices.SortedFunc(slices.Values(newStatus.Requests), compareRequests) {
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
	result, err := r.writeStatus(ctx, s, newStatus)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, report := range s.reports {
		report()
	}
	return result, nil
}

// gather reads an Enrollment and its pool. It returns nil if there is nothing to do.
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
	s.target, err = hostpool.Find(ctx, r.Client, client.ObjectKey{Namespace: key.Namespace, Name: spec.ClusterName}, spec.PoolRole)
	return s, err
}

// adopt sets the Cluster as the owner of the Enrollment before a host is admitted. So clusterctl moves both together,
// and the garbage collector deletes the Enrollment with its Cluster. It also deletes an Enrollment of an earlier
// Cluster with the same name.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	cluster := s.target.Cluster
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() || ownerCluster(s.enrollment) != "" {
		return nil
	}
	written := s.enrollment.DeepCopy()
	written.OwnerReferences = append(written.OwnerReferences, ownerReference(cluster))
	return r.patch(ctx, s, written)
}

// ownerCluster returns the UID of the Cluster that owns an Enrollment, and "" if there is none.
func ownerCluster(enrollment *poolv1.Enrollment) types.UID {
	for _, owner := range enrollment.OwnerReferences {
		if group, _, _ := strings.Cut(owner.APIVersion, "/"); group == clusterv1.GroupVersion.Group && owner.Kind == clusterv1.ClusterKind {
			return owner.UID
		}
	}
	return ""
}

func ownerReference(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind, Name: cluster.Name, UID: cluster.UID}
}

// readToken reads the token from the API server. A Secret with another type counts as missing and is not hashed: a user
// who can write Enrollments, but not read Secrets, must not learn anything about other Secrets.
func (r *Reconciler) readToken(ctx context.Context, s *scope) error {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: s.enrollment.Namespace, Name: s.enrollment.Spec.TokenSecretRef.Name}
	if err := r.APIReader.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
		return err
	}
	if secret.Name == "" || !secret.DeletionTimestamp.IsZero() || secret.Type != poolv1.EnrollmentTokenType {
		s.tokenProblem = hostpool.NewObstacle(poolv1.EnrollmentSecretNotFoundReason,
			"Secret %s of type %s does not exist: create it, with the token in data.%s",
			key.Name, poolv1.EnrollmentTokenType, poolv1.EnrollmentTokenKey)
		return nil
	}
	text, err := access.EnrollmentToken(secret)
	if err != nil {
		s.tokenProblem = hostpool.NewObstacle(poolv1.EnrollmentInvalidSecretReason, "Secret %s: %s", key.Name, err)
		return nil
	}
	owner := access.Enrollment(client.ObjectKeyFromObject(s.enrollment), secret.UID)
	s.token = token{text: text, owner: owner, sha256: owner.Hash(text), secret: secret.UID}
	return nil
}

// writeTokenHash writes the hash of the token to the status before any decision. Otherwise an old token would be
// accepted while a later step fails.
func (r *Reconciler) writeTokenHash(ctx context.Context, s *scope) error {
	written := s.enrollment.DeepCopy()
	written.Status.TokenSHA256, written.Status.TokenSecretUID = s.token.sha256, string(s.token.secret)
	return r.patchStatus(ctx, s, written)
}

// rebind binds the PoolbootConfigs of admitted hosts to the current Secret, if it has the token that they presented:
// clusterctl move and a restored backup create the Secret again with another UID. Until then, the config server answers
// these hosts with 503.
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

// isBoundElsewhere reports whether an Enrollment admitted the host of a PoolbootConfig and its token is bound to
// another Secret.
func isBoundElsewhere(config *bootstrapv1.PoolbootConfig, enrollment string, secret types.UID) bool {
	recorded := record.TokenOf(config)
	return config.Spec.EnrollmentName() == enrollment && recorded.Hash != "" && recorded.UID != secret
}

// patch writes the metadata and spec of an Enrollment with an optimistic lock, because users write the spec too.
func (r *Reconciler) patch(ctx context.Context, s *scope, written *poolv1.Enrollment) error {
	if err := r.Client.Patch(ctx, written, status.Locked(s.enrollment)); err != nil {
		return err
	}
	s.enrollment = written
	return nil
}

// findObstacle returns why the Enrollment admits no host now, and nil if it admits hosts.
func (s *scope) findObstacle() *hostpool.Obstacle {
	spec := s.enrollment.Spec
	_, isMoved := s.enrollment.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	switch patternErr := access.CheckPattern(spec.NamePattern); {
	case isMoved: // clusterctl has replaced the admitted names by its annotation
		return hostpool.NewObstacle(poolv1.EnrollmentMovedReason, "clusterctl has moved this Enrollment to another management cluster, "+
			"so the names that it has admitted are lost here: delete it, and create it again if it is needed here")
	case s.tokenProblem != nil:
		return s.tokenProblem
	case patternErr != nil:
		return hostpool.NewObstacle(poolv1.EnrollmentInvalidNamePatternReason, "spec.namePattern: %s", patternErr)
	case !s.now.Before(spec.ExpirationTime.Time):
		return hostpool.NewObstacle(poolv1.EnrollmentExpiredReason,
			"the token expired: set a later spec.expirationTime, or delete the Enrollment and its Secret")
	case s.target.Cluster != nil && s.target.Cluster.DeletionTimestamp.IsZero() && ownerCluster(s.enrollment) != s.target.Cluster.UID:
		return hostpool.NewObstacle(poolv1.ClusterNotFoundReason, "this Enrollment belongs to an earlier Cluster %s and is deleted with it: "+
			"create it again for the Cluster of that name that exists now", spec.ClusterName)
	}
	return s.target.Obstacle()
}

// compareRequests orders requests by time, and then by name.
func compareRequests(a, b poolv1.EnrollmentRequest) int {
	return cmp.Or(a.RequestedTime.Compare(b.RequestedTime.Time), strings.Compare(a.Name, b.Name))
}
