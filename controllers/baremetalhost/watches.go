package baremetalhost

import (
	"context"
	"errors"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
)

// SetupWithManager adds the controller to a manager. The controller starts after Metal3 is installed.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil {
		return errors.New("baremetalhost controller: Client and APIReader must be set")
	}
	r.Recorder = mgr.GetEventRecorder("baremetalhost-controller")
	builder := ctrl.NewControllerManagedBy(mgr).
		Named("baremetalhost").
		For(&bmov1alpha1.BareMetalHost{}).
		Watches(&bootstrapv1.PoolbootConfig{}, handler.EnqueueRequestsFromMapFunc(hostOfConfig)).
		WithOptions(options)
	builder = hostpool.Watches(ctx, builder, r.Client, &bmov1alpha1.BareMetalHostList{}, func(object client.Object) bool {
		host, ok := object.(*bmov1alpha1.BareMetalHost)
		return ok && requestsPool(host)
	})
	return latecrd.WhenServed(mgr, "baremetalhost", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error { return builder.Complete(r) })
}

// hostOfConfig returns a request for the BareMetalHost of a PoolbootConfig.
func hostOfConfig(_ context.Context, object client.Object) []ctrl.Request {
	config, ok := object.(*bootstrapv1.PoolbootConfig)
	if !ok || record.HostKindOf(config) != record.BareMetalHost {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.Host.BareMetalHostName}}}
}
