// Package overlay deletes overlay Secrets whose join credential has ended: no host gets one of those any more. Others
// delete an overlay when its boot ends; this is for those that nobody is left to end: of a machine that clusterctl
// moved to another management cluster, whose PoolbootConfig went without its finalizer.
package overlay

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch

// Reconciler reconciles overlay Secrets, of which it knows the metadata only.
type Reconciler struct {
	// Client reads PoolbootConfigs from the manager's cache and writes.
	Client client.Client
	// OverlayNamespace is where overlay Secrets are.
	OverlayNamespace string

	// overlays is the cache of their metadata.
	overlays client.Reader
}

// Reconcile deletes one overlay Secret once its credential has ended, unless its host may still join with that.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	overlay := metadata()
	if err := r.overlays.Get(ctx, request.NamespacedName, overlay); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	expires, err := time.Parse(time.RFC3339, overlay.Annotations[bootstrapv1.OverlayExpiresAnnotation])
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // It is none that Poolboot made.
	}
	if left := time.Until(expires); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if wanted, err := r.isWanted(ctx, overlay); err != nil || wanted {
		return ctrl.Result{RequeueAfter: join.Life}, err
	}
	if err := r.Client.Delete(ctx, overlay, client.Preconditions{UID: &overlay.UID, ResourceVersion: &overlay.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("overlay Secret %s, whose credential has ended: %w", request, err)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Deleted an overlay whose credential has ended")
	return ctrl.Result{}, nil
}

// isWanted says whether an overlay is that of a host which may hold what is in it and has not joined: its boot ends it.
// Until then its credential, whose end is put off meanwhile, can be made again from it if nobody could do that in time.
func (r *Reconciler) isWanted(ctx context.Context, overlay *metav1.PartialObjectMetadata) (bool, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.MatchingFields{UIDIndex: overlay.Labels[bootstrapv1.OverlayLabel]}, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range configs.Items {
		boot, id := configs.Items[i].Status.Boot, overlay.Annotations[bootstrapv1.CredentialIDAnnotation]
		if id != "" && boot.CredentialID == id && boot.CredentialExpirationTime != nil {
			return true, nil
		}
	}
	return false, nil
}

// UIDIndex indexes PoolbootConfigs by their UID.
const UIDIndex = "metadata.uid"

// UID is what UIDIndex finds an object by.
func UID(object client.Object) []string { return []string{string(object.GetUID())} }

// SetupWithManager adds the controller to a manager. The overlays come from a cache of their own: the manager's knows
// no other Secrets than kubeconfigs.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	ours, err := labels.NewRequirement(bootstrapv1.OverlayLabel, selection.Exists, nil)
	if err != nil {
		return err
	}
	overlays, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{r.OverlayNamespace: {}},
		DefaultLabelSelector: labels.NewSelector().Add(*ours),
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(overlays); err != nil {
		return err
	}
	r.overlays = overlays
	if err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, UIDIndex, UID); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("overlay").
		WatchesRawSource(source.Kind(overlays, metadata(), &handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{})).
		WithOptions(options).
		Complete(r)
}

func metadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}
