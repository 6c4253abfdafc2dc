package update

import (
	"context"
	"maps"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Init sets what is remembered. It is called before the controllers of hosts and of pools are set up.
func (r *Updates) Init() {
	r.gateReader, r.document, r.rendered = r.newGateReader, r.newDocument, assignments.NewRenderedConfigs(r.Client)
	r.revisions, r.assignments, r.stageClocks = lru.New(maxRevisions), lru.New(maxRevisions), lru.New(maxRevisions)
	r.origins = lru.New(maxOrigins)
	r.failing, r.silent, r.unansweredGates = newStreaks(failureTTL), newStreaks(failureTTL), newStreaks(unansweredPatience)
	r.leases, r.progressInterval = lru.New(maxStreaks), progressInterval
}

// WatchHosts adds the watches to the controller of hosts on what only their updates depend on.
func (r *Updates) WatchHosts(hosts *ctrl.Builder) *ctrl.Builder {
	return hosts.
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(workload.ConfigOfMachine), builder.WithPredicates(predicate.Funcs{UpdateFunc: machineChanged})).
		Watches(&poolv1.MachineConfigPool{}, slotHandler(), builder.WithPredicates(predicate.Funcs{UpdateFunc: slotsChanged})).
		WatchesRawSource(source.Kind(r.Secrets, client.Object(secretmetadata.New()), handler.EnqueueRequestsFromMapFunc(r.configOfAssignment), r.assignmentChanged()))
}

// FollowPools builds the controller of pools with the watches on what only the choice of the next hosts depends on. It
// also receives the events of Nodes.
func (r *Updates) FollowPools(mgr ctrl.Manager, pools *ctrl.Builder, reconciler reconcile.Reconciler) (err error) {
	r.poolController, err = pools.
		Watches(&clusterv1.Machine{}, fairqueue.EnqueueLow(r.requestPoolOfMachine), builder.WithPredicates(predicate.Funcs{UpdateFunc: machineChanged})).
		WatchesRawSource(source.Kind(r.HostSecrets, client.Object(secretmetadata.New()), fairqueue.EnqueueLow(r.requestPoolsOfNetworkData))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("machineconfigpool", r.requestPools)).
		Build(reconciler)
	if err != nil {
		return err
	}
	return latecrd.WhenServed(mgr, "machineconfigpool", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error {
		return r.poolController.Watch(source.Kind[client.Object](mgr.GetCache(), &bmov1alpha1.BareMetalHost{}, fairqueue.EnqueueLow(r.requestPoolOfHost),
			predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: networkDataChanged}))
	})
}

// networkDataChanged selects the updates of a BareMetalHost that change which Secret has its network data.
func networkDataChanged(e event.UpdateEvent) bool {
	return !slices.Equal(barehost.IndexNetworkData(e.ObjectOld), barehost.IndexNetworkData(e.ObjectNew))
}

// slotsChanged selects the updates of a pool that change its slots, or which hosts stage.
func slotsChanged(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(slotsOf(e.ObjectOld), slotsOf(e.ObjectNew)) || !equality.Semantic.DeepEqual(stagingOf(e.ObjectOld), stagingOf(e.ObjectNew)) ||
		!e.ObjectOld.(*poolv1.MachineConfigPool).Status.SlotsOpenTime.Equal(e.ObjectNew.(*poolv1.MachineConfigPool).Status.SlotsOpenTime)
}

func slotsOf(pool client.Object) []poolv1.UpdateSlot {
	return pool.(*poolv1.MachineConfigPool).Status.Slots
}

func stagingOf(pool client.Object) []poolv1.StagingHost {
	return pool.(*poolv1.MachineConfigPool).Status.Staging
}

// slotHandler requests the hosts whose slots of a pool are new, and those that are to stage.
func slotHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		known := map[string]string{}
		for _, slot := range slotsOf(e.ObjectOld) {
			known[slot.Host] = slot.ID
		}
		add := func(host string) {
			q.Add(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: e.ObjectNew.GetNamespace(), Name: host}})
		}
		for _, slot := range slotsOf(e.ObjectNew) {
			if known[slot.Host] != slot.ID {
				add(slot.Host)
			}
		}
		for _, staging := range stagingOf(e.ObjectNew) {
			if last := rollout.StagingOf(stagingOf(e.ObjectOld), staging.Host); last == nil || last.Revision != staging.Revision {
				add(staging.Host)
			}
		}
	}}
}

// requestPools returns requests for the pools of a Cluster.
func (r *Updates) requestPools(ctx context.Context, cluster client.Object) []ctrl.Request {
	return workload.PoolRequests(ctx, r.Client, client.ObjectKeyFromObject(cluster), "")
}

// requestPoolOfMachine returns a request for the pool of a Machine.
func (r *Updates) requestPoolOfMachine(ctx context.Context, object client.Object) []ctrl.Request {
	return r.requestPoolsOf(ctx, workload.ConfigOfMachine(ctx, object))
}

// requestPoolOfHost returns a request for the pool of a BareMetalHost.
func (r *Updates) requestPoolOfHost(ctx context.Context, bmh client.Object) []ctrl.Request {
	return r.requestPoolsOf(ctx, workload.ConfigOfHost(ctx, r.Client, bmh))
}

// requestPoolsOfNetworkData returns requests for the pools of the hosts whose network data is in a Secret.
func (r *Updates) requestPoolsOfNetworkData(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.requestPoolsOf(ctx, workload.ConfigsOfNetworkData(ctx, r.Client, secret))
}

// requestPoolsOf returns requests for the pools of PoolbootConfigs.
func (r *Updates) requestPoolsOf(ctx context.Context, configs []ctrl.Request) (pools []ctrl.Request) {
	for _, request := range configs {
		config := &bootstrapv1.PoolbootConfig{}
		if err := r.Client.Get(ctx, request.NamespacedName, config); err == nil {
			pools = append(pools, workload.PoolOfConfig(ctx, r.Client, config)...)
		}
	}
	return pools
}

// machineChanged selects the changes of a Machine that a rollout depends on: its labels and taints, which its Node
// gets, and what Cluster API does to it.
func machineChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
	return !maps.Equal(before.Labels, after.Labels) || !slices.Equal(before.Spec.Taints, after.Spec.Taints) || !rollout.IsSameForRollout(before, after)
}

// ConfigChanged selects the changes of a PoolbootConfig that a decision about its pool depends on.
func ConfigChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*bootstrapv1.PoolbootConfig), e.ObjectNew.(*bootstrapv1.PoolbootConfig)
	return before.Generation != after.Generation ||
		rollout.IsFollowed(before) != rollout.IsFollowed(after) ||
		!maps.Equal(before.Annotations, after.Annotations) ||
		before.Status.PoolRole != after.Status.PoolRole ||
		before.Status.NodeRef != after.Status.NodeRef ||
		before.Status.Update.Slot != after.Status.Update.Slot ||
		before.Status.Update.Desired != after.Status.Update.Desired ||
		before.Status.Update.DesiredRevision != after.Status.Update.DesiredRevision
}
