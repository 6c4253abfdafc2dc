package enrollment

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// NewTokenSecrets adds a cache to a manager. It has the metadata of all Secrets with enrollment tokens, because the
// manager's own cache has only Secrets with the label of a Cluster. An empty namespace means all namespaces.
func NewTokenSecrets(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	options := cache.ByObject{Field: fields.OneTermEqualSelector("type", string(poolv1.EnrollmentTokenType))}
	if namespace != "" {
		options.Namespaces = map[string]cache.Config{namespace: {}}
	}
	return secretmetadata.NewCache(mgr, cache.Options{ByObject: map[client.Object]cache.ByObject{secretmetadata.New(): options}})
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.TokenSecrets == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil {
		return errors.New("enrollment controller: Client, APIReader, TokenSecrets, ClusterCache, ServerURL and ServerCA must be set")
	}
	r.Recorder, r.Now = mgr.GetEventRecorder("enrollment-controller"), time.Now
	newOrPaused := predicates.ClusterPausedTransitions(mgr.GetScheme(), ctrl.LoggerFrom(ctx))
	newOrPaused.CreateFunc = nil // every new Cluster
	b := ctrl.NewControllerManagedBy(mgr).
		Named("enrollment").
		For(&poolv1.Enrollment{}).
		WatchesRawSource(source.Kind[client.Object](r.TokenSecrets, secretmetadata.New(), handler.EnqueueRequestsFromMapFunc(r.enrollmentsOfSecret))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.enrollmentsOfCluster), builder.WithPredicates(newOrPaused)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("enrollment", r.enrollmentsOfCluster)).
		Watches(&bootstrapv1.PoolbootConfig{}, configHandler(mgr.GetClient())).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfEnrollment(r.Client)))
	all := func(client.Object) bool { return true } // a namespace has few Enrollments
	return hostpool.Watches(ctx, b, r.Client, &poolv1.EnrollmentList{}, all).Complete(r)
}

// enrollmentsOfCluster returns requests for the Enrollments of a Cluster.
func (r *Reconciler) enrollmentsOfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.enrollments(ctx, cluster.GetNamespace(), func(e *poolv1.Enrollment) bool { return e.Spec.ClusterName == cluster.GetName() })
}

// enrollmentsOfSecret returns requests for the Enrollments that reference a Secret.
func (r *Reconciler) enrollmentsOfSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.enrollments(ctx, secret.GetNamespace(), func(e *poolv1.Enrollment) bool { return e.Spec.TokenSecretRef.Name == secret.GetName() })
}

// enrollments returns requests for the matching Enrollments in a namespace.
func (r *Reconciler) enrollments(ctx context.Context, namespace string, matches func(*poolv1.Enrollment) bool) []ctrl.Request {
	return workload.RequestMatching(ctx, r.Client, &poolv1.EnrollmentList{}, matches, client.InNamespace(namespace))
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
