// Package overlay deletes what is left over in the namespace of the config server: overlay Secrets whose join
// credential has expired, so that no host gets them any more, and assignment Secrets whose PoolbootConfig does not
// exist. Other reconcilers delete an overlay when its boot ends, and an assignment with its PoolbootConfig. Leftovers
// exist, for example, because clusterctl moved a machine to another management cluster and removed its PoolbootConfig
// without running its finalizer.
package overlay

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch

// Reconciler deletes expired overlay Secrets and orphaned assignment Secrets. It reads only their metadata.
type Reconciler struct {
	// Client reads PoolbootConfigs from the manager's cache, and deletes Secrets.
	Client client.Client
	// OverlayNamespace is the namespace of overlay Secrets and assignment Secrets.
	OverlayNamespace string
	// Secrets is the cache of their metadata.
	Secrets cache.Cache
}

// Reconcile deletes a Secret that is left over. Secrets of other kinds stay.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secret := secretmetadata.New()
	if err := r.Secrets.Get(ctx, request.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case secret.Labels[bootstrapv1.OverlayLabel] != "":
		return r.reconcileOverlay(ctx, secret)
	case secret.Labels[bootstrapv1.AssignmentLabel] != "":
		return ctrl.Result{}, r.reconcileAssignment(ctx, secret)
	}
	return ctrl.Result{}, nil
}

// reconcileAssignment deletes an assignment Secret whose PoolbootConfig does not exist. The manager stores an
// assignment only if the PoolbootConfig is in this cache.
func (r *Reconciler) reconcileAssignment(ctx context.Context, assignment *metav1.PartialObjectMetadata) error {
	configs, err := r.configsOf(ctx, assignment.Labels[bootstrapv1.AssignmentLabel])
	if err != nil || len(configs) > 0 {
		return err
	}
	return r.delete(ctx, assignment, "assignment Secret, whose PoolbootConfig does not exist")
}

// reconcileOverlay deletes an overlay Secret after its join credential has expired, unless its host can still join with
// it.
func (r *Reconciler) reconcileOverlay(ctx context.Context, overlay *metav1.PartialObjectMetadata) (ctrl.Result, error) {
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
	return ctrl.Result{}, r.delete(ctx, overlay, "overlay Secret, whose join credential has expired")
}

// delete deletes a Secret if it is still the one in the cache. what says what it is, and why it is left over.
func (r *Reconciler) delete(ctx context.Context, secret *metav1.PartialObjectMetadata, what string) error {
	err := r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s/%s, an %s: %w", secret.Namespace, secret.Name, what, err)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Deleted an " + what)
	return nil
}

// isInUse reports whether the host of an overlay can have its content and has not joined. The host controller extends
// the join credential of such a host. If it could not do so in time, it creates the credential again from the overlay,
// and it deletes the overlay when the boot ends.
func (r *Reconciler) isInUse(ctx context.Context, overlay *metav1.PartialObjectMetadata) (bool, error) {
	configs, err := r.configsOf(ctx, overlay.Labels[bootstrapv1.OverlayLabel])
	if err != nil {
		return false, err
	}
	for i := range configs {
		boot, credentialID := configs[i].Status.Boot, overlay.Annotations[bootstrapv1.CredentialIDAnnotation]
		if credentialID != "" && boot.CredentialID == credentialID && boot.CredentialExpirationTime != nil {
			return true, nil
		}
	}
	return false, nil
}

// configsOf returns the PoolbootConfigs with a UID, one or none. They must not be changed.
func (r *Reconciler) configsOf(ctx context.Context, uid string) ([]bootstrapv1.PoolbootConfig, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	err := r.Client.List(ctx, configs, client.MatchingFields{UIDIndex: uid}, client.UnsafeDisableDeepCopy)
	return configs.Items, err
}

// assignmentOf returns the assignment Secret of a PoolbootConfig.
func (r *Reconciler) assignmentOf(_ context.Context, config client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: r.OverlayNamespace, Name: record.AssignmentName(config.GetUID())}}}
}

// UIDIndex is the index of PoolbootConfigs by UID.
const UIDIndex = "metadata.uid"

// UID returns the values of UIDIndex for an object.
func UID(object client.Object) []string { return []string{string(object.GetUID())} }

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, controllerOptions controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, UIDIndex, UID); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("overlay").
		WatchesRawSource(source.Kind(r.Secrets, secretmetadata.New(), &handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{})).
		Watches(&bootstrapv1.PoolbootConfig{}, handler.EnqueueRequestsFromMapFunc(r.assignmentOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		WithOptions(controllerOptions).
		Complete(r)
}
