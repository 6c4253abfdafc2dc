package enrollment

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/hostpool"
)

// SetupWithManager adds the controller to a manager. Secrets are watched in the manager's cache, which holds those of
// Clusters, and of tokens no data.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil {
		return errors.New("enrollment controller: Client, APIReader, ClusterCache, ServerURL and ServerCA must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("enrollment-controller")
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	isToken := predicate.NewPredicateFuncs(func(o client.Object) bool {
		secret, is := o.(*corev1.Secret)
		return is && secret.Type == poolv1.EnrollmentTokenType
	})
	onlyNew := predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
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
		Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(isToken)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(tokensOf(mgr.GetCache(), isToken)), builder.WithPredicates(onlyNew)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("enrollment", tokensOf(mgr.GetCache(), isToken))).
		Watches(&bootstrapv1.PoolbootConfig{}, ofConfig(mgr.GetClient()), builder.WithPredicates(comesOrGoes)).
		WithOptions(options)
	every := func(client.Object) bool { return true } // of a namespace they are few
	return hostpool.Watches(ctx, b, r.Client, &poolv1.EnrollmentList{}, every).Complete(r)
}

// tokensOf sends the tokens of a Cluster, which may have waited for it or for a connection to it.
func tokensOf(cached client.Reader, isToken predicate.Predicate) handler.MapFunc {
	return func(ctx context.Context, cluster client.Object) (requests []ctrl.Request) {
		secrets := &corev1.SecretList{}
		if err := cached.List(ctx, secrets, client.InNamespace(cluster.GetNamespace()),
			client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The tokens of a Cluster can't be listed", "Cluster", client.ObjectKeyFromObject(cluster))
		}
		for i := range secrets.Items {
			if isToken.Generic(event.GenericEvent{Object: &secrets.Items[i]}) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
			}
		}
		return requests
	}
}

// ofConfig sends the enrollment of a host whose record has gone: one that asks for its name may be waiting. And of one whose record
// has come, when it is bound to another Secret than the enrollment is: it was moved or restored.
func ofConfig(cached client.Reader) handler.Funcs {
	of := func(config client.Object) client.ObjectKey {
		return client.ObjectKey{Namespace: config.GetNamespace(), Name: config.GetAnnotations()[bootstrapv1.EnrollmentAnnotation]}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enrollment, key := &poolv1.Enrollment{}, of(e.Object)
			if config, is := e.Object.(*bootstrapv1.PoolbootConfig); is && key.Name != "" && cached.Get(ctx, key, enrollment) == nil &&
				isBoundElsewhere(config, key.Name, types.UID(enrollment.Spec.SecretUID)) {
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
