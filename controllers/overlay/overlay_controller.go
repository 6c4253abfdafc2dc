// Package overlay deletes overlay Secrets whose join credential has expired: no host gets such an overlay any more.
// Other reconcilers delete an overlay when its boot ends. This one deletes those that are left over, for example
// because clusterctl moved a machine to another management cluster and removed its PoolbootConfig without running its
// finalizer.
package overlay

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Reconciler deletes expired overlay Secrets. It reads only their metadata.
type Reconciler struct {
	// Client reads PoolbootConfigs from the manager's cache, and deletes Secrets.
	Client client.Client
	// OverlayNamespace is the namespace of overlay Secrets.
	OverlayNamespace string

	// overlays is the cache of their metadata.
	overlays client.Reader
}

// Reconcile deletes an overlay Secret after its join credential has expired, unless its host can still join with it.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	overlay := newMetadata()
	if err := r.overlays.Get(ctx, request.NamespacedName, overlay); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	expires, err := time.Parse(time.RFC3339, overlay.Annotations[bootstrapv1.OverlayExpiresAnnotation])
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // Poolboot did not create this Secret.
	}
	if remaining := time.Until(expires); remaining > 0 {
		return ctrl.Result{RequeueAfter: remaining}, nil
	}
	if inUse, err := r.isInUse(ctx, overlay); err != nil || inUse {
		return ctrl.Result{RequeueAfter: join.Lifetime}, err
	}
	if err := r.Client.Delete(ctx, overlay, client.Preconditions{UID: &overlay.UID, ResourceVersion: &overlay.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting overlay Secret %s, whose join credential has expired: %w", request, err)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Deleted an overlay Secret whose join credential has expired")
	return ctrl.Result{}, nil
}

// isInUse reports whether the host of an overlay can have its content and has not joined. The boot controller extends
// the join credential of such a host. If it could not do so in time, it creates the credential again from the overlay,
// and it deletes the overlay when the boot ends.
func (r *Reconciler) isInUse(ctx context.Context, overlay *metav1.PartialObjectMetadata) (bool, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.MatchingFields{UIDIndex: overlay.Labels[bootstrapv1.OverlayLabel]}, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range configs.Items {
		boot, credentialID := configs.Items[i].Status.Boot, overlay.Annotations[bootstrapv1.CredentialIDAnnotation]
		if credentialID != "" && boot.CredentialID == credentialID && boot.CredentialExpirationTime != nil {
			return true, nil
		}
	}
	return false, nil
}

// UIDIndex is the index of PoolbootConfigs by UID.
const UIDIndex = "metadata.uid"

// UID returns the values of UIDIndex for an object.
func UID(object client.Object) []string { return []string{string(object.GetUID())} }

// SetupWithManager adds the controller to a manager. It creates a separate cache for overlays: the manager's cache has
// no Secrets except kubeconfigs.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, controllerOptions controller.Options) error {
	var options client.ListOptions
	client.HasLabels{bootstrapv1.OverlayLabel}.ApplyToList(&options)
	overlays, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{r.OverlayNamespace: {}},
		DefaultLabelSelector: options.LabelSelector,
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
		WatchesRawSource(source.Kind(overlays, newMetadata(), &handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{})).
		WithOptions(controllerOptions).
		Complete(r)
}

// newMetadata returns the metadata of a Secret.
func newMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
}
