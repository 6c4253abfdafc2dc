package certificate

import (
	"context"
	"errors"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.NetworkData == nil || r.ClusterCache == nil {
		return errors.New("certificate controller: Client, APIReader, NetworkData and ClusterCache must be set")
	}
	r.Recorder = mgr.GetEventRecorder("certificate-controller")
	r.reported, r.awaited = lru.New(maxReported), lru.New(maxReported)
	err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, workload.HostUserIndex, workload.HostUsers)
	if err != nil {
		return err
	}
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("certificate").
		For(&bootstrapv1.PoolbootConfig{}, builder.WithPredicates(hostChanged())).
		Watches(&poolv1.Enrollment{}, handler.EnqueueRequestsFromMapFunc(r.configsOfEnrollment), builder.WithPredicates(addressRangesChanged())).
		WatchesRawSource(r.ClusterCache.GetClusterSource("certificate", r.configsOfCluster)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfConfig(r.Client))).
		Build(r)
	if err != nil {
		return err
	}
	return latecrd.WhenServed(mgr, "certificate", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error {
		return r.controller.Watch(source.Kind[client.Object](mgr.GetCache(), &bmov1alpha1.BareMetalHost{},
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, bmh client.Object) []ctrl.Request {
				return workload.ConfigOfHost(ctx, r.Client, bmh)
			}), hostAddressesChanged()))
	})
}

func (r *Reconciler) configsOfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return workload.ConfigsOfCluster(ctx, r.Client, client.ObjectKeyFromObject(cluster), canRequest)
}

// configsOfEnrollment returns requests for the PoolbootConfigs of hosts that an Enrollment admitted.
func (r *Reconciler) configsOfEnrollment(ctx context.Context, object client.Object) []ctrl.Request {
	enrollment, ok := object.(*poolv1.Enrollment)
	if !ok {
		return nil
	}
	cluster := client.ObjectKey{Namespace: enrollment.Namespace, Name: enrollment.Spec.ClusterName}
	return workload.ConfigsOfCluster(ctx, r.Client, cluster, func(config *bootstrapv1.PoolbootConfig) bool {
		return canRequest(config) && config.Spec.EnrollmentName() == enrollment.Name
	})
}

// addressRangesChanged matches updates of an Enrollment that change its address ranges.
func addressRangesChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*poolv1.Enrollment)
			after, okAfter := e.ObjectNew.(*poolv1.Enrollment)
			return ok && okAfter && !slices.Equal(before.Spec.AddressRanges, after.Spec.AddressRanges)
		},
	}
}

// hostChanged matches updates of a PoolbootConfig, and resyncs, unless only the progress of the host changed. That
// happens several times in each update, and a request that is not approved is checked against all other hosts.
func hostChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*bootstrapv1.PoolbootConfig)
		after, okAfter := e.ObjectNew.(*bootstrapv1.PoolbootConfig)
		return ok && okAfter && (before.ResourceVersion == after.ResourceVersion || !equality.Semantic.DeepEqual(withoutProgress(before), withoutProgress(after)))
	}}
}

// withoutProgress returns what decisions can depend on.
func withoutProgress(config *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
	c := *config
	c.ObjectMeta = metav1.ObjectMeta{
		Labels: config.Labels, Annotations: config.Annotations, OwnerReferences: config.OwnerReferences, DeletionTimestamp: config.DeletionTimestamp,
	}
	c.Status.Update, c.Status.Requests.RegistrationRequestedTime = bootstrapv1.UpdateStatus{}, nil
	c.Status.Conditions = slices.DeleteFunc(slices.Clone(c.Status.Conditions), func(condition metav1.Condition) bool {
		return condition.Type == bootstrapv1.UpdatedCondition || condition.Type == clusterv1.ReadyCondition
	})
	return &c
}

// hostAddressesChanged matches updates of a BareMetalHost that can change its known addresses.
func hostAddressesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*bmov1alpha1.BareMetalHost)
		after, okAfter := e.ObjectNew.(*bmov1alpha1.BareMetalHost)
		return ok && okAfter && (before.Annotations[poolv1.HostAddressesAnnotation] != after.Annotations[poolv1.HostAddressesAnnotation] ||
			!equality.Semantic.DeepEqual(before.Status.HardwareDetails, after.Status.HardwareDetails) ||
			!slices.Equal(host.IndexNetworkData(before), host.IndexNetworkData(after)))
	}}
}
