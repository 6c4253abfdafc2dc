package enrollment

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

// newSecretMetadata returns the metadata of a Secret.
func newSecretMetadata() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return secret
}

// NewTokenSecrets adds a cache to a manager. It has the metadata of all Secrets with enrollment tokens, because the
// manager's own cache has only Secrets with the label of a Cluster. An empty namespace means all namespaces.
func NewTokenSecrets(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	options := cache.ByObject{
		Field:     fields.OneTermEqualSelector("type", string(poolv1.EnrollmentTokenType)),
		Transform: cache.TransformStripManagedFields(),
	}
	if namespace != "" {
		options.Namespaces = map[string]cache.Config{namespace: {}}
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: map[client.Object]cache.ByObject{newSecretMetadata(): options},
	})
	if err != nil {
		return nil, err
	}
	return secrets, mgr.Add(secrets)
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.TokenSecrets == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil {
		return errors.New("enrollment controller: Client, APIReader, TokenSecrets, ClusterCache, ServerURL and ServerCA must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("enrollment-controller")
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	newOrPaused := predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*clusterv1.Cluster)
			after, okAfter := e.ObjectNew.(*clusterv1.Cluster)
			return ok && okAfter && ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	createdOrDeleted := predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("enrollment").
		For(&poolv1.Enrollment{}).
		WatchesRawSource(source.Kind[client.Object](r.TokenSecrets, newSecretMetadata(), handler.EnqueueRequestsFromMapFunc(r.enrollmentsOfSecret))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.enrollmentsOfCluster), builder.WithPredicates(newOrPaused)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("enrollment", r.enrollmentsOfCluster)).
		Watches(&bootstrapv1.PoolbootConfig{}, configHandler(mgr.GetClient()), builder.WithPredicates(createdOrDeleted)).
		WithOptions(options)
	all := func(client.Object) bool { return true } // a namespace has few Enrollments
	return hostpool.Watches(ctx, b, r.Client, &poolv1.EnrollmentList{}, all).Complete(r)
}

// enrollmentsOfCluster returns requests for the Enrollments of a Cluster.
func (r *Reconciler) enrollmentsOfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.enrollments(ctx, cluster, func(e *poolv1.Enrollment) bool { return e.Spec.ClusterName == cluster.GetName() })
}

// enrollmentsOfSecret returns requests for the Enrollments that reference a Secret.
func (r *Reconciler) enrollmentsOfSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.enrollments(ctx, secret, func(e *poolv1.Enrollment) bool { return e.Spec.TokenSecretRef.Name == secret.GetName() })
}

// enrollments returns requests for the matching Enrollments in the namespace of a changed object.
func (r *Reconciler) enrollments(ctx context.Context, changed client.Object, matches func(*poolv1.Enrollment) bool) (requests []ctrl.Request) {
	list := &poolv1.EnrollmentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(changed.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list Enrollments", "namespace", changed.GetNamespace())
	}
	for i := range list.Items {
		if matches(&list.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// configHandler requests a reconcile of the Enrollment of a deleted PoolbootConfig, because another host can wait for
// the name. It does the same for a new PoolbootConfig that is bound to another Secret, because it was moved or
// restored.
func configHandler(cached client.Reader) handler.Funcs {
	enrollmentOf := func(object client.Object) client.ObjectKey {
		config, ok := object.(*bootstrapv1.PoolbootConfig)
		if !ok {
			return client.ObjectKey{}
		}
		return client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.EnrollmentName()}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enrollment, key := &poolv1.Enrollment{}, enrollmentOf(e.Object)
			if config, ok := e.Object.(*bootstrapv1.PoolbootConfig); ok && key.Name != "" && cached.Get(ctx, key, enrollment) == nil &&
				isBoundElsewhere(config, key.Name, types.UID(enrollment.Status.TokenSecretUID)) {
				queue.Add(ctrl.Request{NamespacedName: key})
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if key := enrollmentOf(e.Object); key.Name != "" {
				queue.Add(ctrl.Request{NamespacedName: key})
			}
		},
	}
}
