package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// PoolsOfCluster lists the pools of a Cluster by name. The cache lists objects in another order each time.
func PoolsOfCluster(ctx context.Context, c client.Reader, cluster client.ObjectKey) ([]poolv1.MachineConfigPool, error) {
	pools := &poolv1.MachineConfigPoolList{}
	err := c.List(ctx, pools, client.InNamespace(cluster.Namespace))
	ofCluster := slices.DeleteFunc(pools.Items, func(p poolv1.MachineConfigPool) bool {
		return p.Spec.ClusterName != cluster.Name
	})
	slices.SortFunc(ofCluster, func(a, b poolv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	return ofCluster, err
}

// GetIfExists reads an object, and returns nil if it does not exist.
func GetIfExists[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key client.ObjectKey, options ...client.GetOption) (Object, error) {
	object := Object(new(T))
	if err := c.Get(ctx, key, object, options...); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// HasNodes reports whether a reconciler of Nodes has something to do in a Cluster. It has not if the Cluster does not
// exist, is being deleted, is paused, has no initialized control plane, or does not have watchFilter as the value of
// its label cluster.x-k8s.io/watch-filter. An empty watchFilter matches every Cluster.
func HasNodes(cluster *clusterv1.Cluster, watchFilter string) bool {
	return cluster != nil && cluster.DeletionTimestamp.IsZero() && (watchFilter == "" || labels.HasWatchLabel(cluster, watchFilter)) &&
		!annotations.IsPaused(cluster, cluster) && conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)
}

// ClusterWithPools returns a Cluster and its pools for a reconciler of Nodes. It returns no pools unless the Cluster
// HasNodes.
func ClusterWithPools(ctx context.Context, c client.Reader, key client.ObjectKey, watchFilter string) (*clusterv1.Cluster, []poolv1.MachineConfigPool, error) {
	cluster, err := GetIfExists[clusterv1.Cluster](ctx, c, key)
	if err != nil || !HasNodes(cluster, watchFilter) {
		return cluster, nil, err
	}
	pools, err := PoolsOfCluster(ctx, c, key)
	return cluster, pools, err
}

// PoolChanged reports whether an update of a pool can change a decision about its Machines or Nodes.
func PoolChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*poolv1.MachineConfigPool), e.ObjectNew.(*poolv1.MachineConfigPool)
	return before.Generation != after.Generation ||
		before.Annotations[poolv1.ClusterIdentityAnnotation] != after.Annotations[poolv1.ClusterIdentityAnnotation] ||
		!equality.Semantic.DeepEqual(before.Status.Configuration, after.Status.Configuration)
}

// ClusterOfPool returns the key of a pool's Cluster.
func ClusterOfPool(pool client.Object) client.ObjectKey {
	return client.ObjectKey{Namespace: pool.GetNamespace(), Name: pool.(*poolv1.MachineConfigPool).Spec.ClusterName}
}

// RequestItself returns a request for the object of an event.
func RequestItself(_ context.Context, object client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
}

// RequestClusterOfPool returns a request for the Cluster of a pool.
func RequestClusterOfPool(_ context.Context, pool client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: ClusterOfPool(pool)}}
}

// RequestMatching lists objects and returns a request for each that matches. It is for event handlers, so it logs
// errors. matches must not change the object, which can be in the cache.
func RequestMatching[Object client.Object](
	ctx context.Context, c client.Reader, list client.ObjectList, matches func(Object) bool, options ...client.ListOption,
) (requests []ctrl.Request) {
	err := c.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object := item.(Object); matches(object) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			}
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the objects that an event concerns", "kind", fmt.Sprintf("%T", list))
	}
	return requests
}

// ConfigsOfCluster returns a request for each PoolbootConfig of a Cluster that matches, as RequestMatching does. Use
// options to narrow the list if the event occurs once for each Machine: the cost must not be quadratic.
func ConfigsOfCluster(
	ctx context.Context, configs client.Reader, cluster client.ObjectKey, matches func(*bootstrapv1.PoolbootConfig) bool, options ...client.ListOption,
) []ctrl.Request {
	options = append(options, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	return RequestMatching(ctx, configs, &bootstrapv1.PoolbootConfigList{}, matches, options...)
}

// PoolRequests returns a request for each pool of a Cluster with a role. An empty role matches all.
func PoolRequests(ctx context.Context, c client.Reader, cluster client.ObjectKey, role string) []ctrl.Request {
	return RequestMatching(ctx, c, &poolv1.MachineConfigPoolList{}, func(p *poolv1.MachineConfigPool) bool {
		return p.Spec.ClusterName == cluster.Name && (role == "" || p.Spec.PoolRole == role)
	}, client.InNamespace(cluster.Namespace))
}

// PoolOfConfig returns a request for the pool that is recorded for a PoolbootConfig, or none if there is no record.
func PoolOfConfig(ctx context.Context, c client.Reader, config *bootstrapv1.PoolbootConfig) []ctrl.Request {
	if config.Status.PoolRole == "" {
		return nil
	}
	return PoolRequests(ctx, c, record.ClusterKey(config), config.Status.PoolRole)
}

// MapToConfigs returns a function that maps a Cluster, or a MachineConfigPool, to the PoolbootConfigs of its Cluster
// that match. matches must not change the PoolbootConfig.
func MapToConfigs(configs client.Reader, matches func(*bootstrapv1.PoolbootConfig) bool) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []ctrl.Request {
		cluster := client.ObjectKeyFromObject(object)
		if _, ok := object.(*poolv1.MachineConfigPool); ok {
			cluster = ClusterOfPool(object)
		}
		return ConfigsOfCluster(ctx, configs, cluster, matches)
	}
}

// ConfigOfMachine returns a request for the PoolbootConfig of a Machine. It returns none if the Machine has another
// bootstrap provider.
func ConfigOfMachine(_ context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*clusterv1.Machine)
	if !ok || record.IsBootedByOther(machine) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}}}
}

// ConfigOfHost returns a request for the PoolbootConfig of a BareMetalHost. It returns none if Poolboot does not boot
// the host.
func ConfigOfHost(ctx context.Context, c client.Reader, object client.Object) []ctrl.Request {
	bmh, ok := object.(*bmov1alpha1.BareMetalHost)
	if !ok {
		return nil
	}
	key, err := host.MachineOf(ctx, c, bmh)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the Machine of a BareMetalHost", "BareMetalHost", client.ObjectKeyFromObject(bmh))
	}
	switch {
	case key.Name == "" && bmh.Annotations[poolv1.HostPoolAnnotation] != "": // its PoolbootConfig has the same name
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(bmh)}}
	case key.Name == "":
		return nil
	}
	machine := &clusterv1.Machine{}
	if err := c.Get(ctx, key, machine); err != nil {
		return nil
	}
	return ConfigOfMachine(ctx, machine)
}

// ConfigsOfNetworkData returns requests for the PoolbootConfigs of the BareMetalHosts whose network data is in a
// Secret. It returns none before the index exists, which is when Metal3 is installed.
func ConfigsOfNetworkData(ctx context.Context, c client.Reader, secret client.Object) (requests []ctrl.Request) {
	hosts := &bmov1alpha1.BareMetalHostList{}
	if c.List(ctx, hosts, client.InNamespace(secret.GetNamespace()), client.MatchingFields{host.NetworkDataIndex: secret.GetName()}) != nil {
		return nil
	}
	for i := range hosts.Items {
		requests = append(requests, ConfigOfHost(ctx, c, &hosts.Items[i])...)
	}
	return requests
}

// ConfigOfHardware returns a request for the PoolbootConfig of the BareMetalHost that has the name of a HardwareData.
func ConfigOfHardware(ctx context.Context, c client.Reader, hardware client.Object) []ctrl.Request {
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(hardware), bmh); err != nil {
		return nil
	}
	return ConfigOfHost(ctx, c, bmh)
}
