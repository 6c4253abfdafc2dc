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

// tokenSecret is the kind of Secrets without what they hold.
func tokenSecret() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return secret
}

// NewTokenSecrets adds to a manager a cache of the metadata of Secrets with enrollment tokens, whatever labels they
// have. The manager's own cache holds only Secrets with the label of a Cluster. An empty namespace means all of them.
func NewTokenSecrets(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	by := cache.ByObject{
		Field:     fields.OneTermEqualSelector("type", string(poolv1.EnrollmentTokenType)),
		Transform: cache.TransformStripManagedFields(),
	}
	if namespace != "" {
		by.Namespaces = map[string]cache.Config{namespace: {}}
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: map[client.Object]cache.ByObject{tokenSecret(): by},
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
			before, is := e.ObjectOld.(*clusterv1.Cluster)
			after, isToo := e.ObjectNew.(*clusterv1.Cluster)
			return is && isToo && ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	comesOrGoes := predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("enrollment").
		For(&poolv1.Enrollment{}).
		WatchesRawSource(source.Kind[client.Object](r.TokenSecrets, tokenSecret(), handler.EnqueueRequestsFromMapFunc(r.ofSecret))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(newOrPaused)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("enrollment", r.ofCluster)).
		Watches(&bootstrapv1.PoolbootConfig{}, ofConfig(mgr.GetClient()), builder.WithPredicates(comesOrGoes)).
		WithOptions(options)
	every := func(client.Object) bool { return true } // of a namespace they are few
	return hostpool.Watches(ctx, b, r.Client, &poolv1.EnrollmentList{}, every).Complete(r)
}

// ofCluster sends the Enrollments of a Cluster, which may have waited for it or for a connection to it.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.enrollments(ctx, cluster, func(e *poolv1.Enrollment) bool { return e.Spec.ClusterName == cluster.GetName() })
}

// ofSecret sends the Enrollments that name a Secret.
func (r *Reconciler) ofSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.enrollments(ctx, secret, func(e *poolv1.Enrollment) bool { return e.Spec.TokenSecretRef.Name == secret.GetName() })
}

// enrollments are those in the namespace of what has changed that it concerns.
func (r *Reconciler) enrollments(ctx context.Context, changed client.Object, concerns func(*poolv1.Enrollment) bool) (requests []ctrl.Request) {
	list := &poolv1.EnrollmentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(changed.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The Enrollments of a namespace can't be listed", "namespace", changed.GetNamespace())
	}
	for i := range list.Items {
		if concerns(&list.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// ofConfig sends the enrollment of a host whose record has gone: one that asks for its name may be waiting. And of one
// whose record has come, when it is bound to another Secret than the enrollment is: it was moved or restored.
func ofConfig(cached client.Reader) handler.Funcs {
	of := func(object client.Object) client.ObjectKey {
		config, is := object.(*bootstrapv1.PoolbootConfig)
		if !is {
			return client.ObjectKey{}
		}
		return client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.EnrollmentName()}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enrollment, key := &poolv1.Enrollment{}, of(e.Object)
			if config, is := e.Object.(*bootstrapv1.PoolbootConfig); is && key.Name != "" && cached.Get(ctx, key, enrollment) == nil &&
				isBoundElsewhere(config, key.Name, types.UID(enrollment.Status.TokenSecretUID)) {
				queue.Add(ctrl.Request{NamespacedName: key})
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if key := of(e.Object); key.Name != "" {
				queue.Add(ctrl.Request{NamespacedName: key})
			}
		},
	}
}
