package workload

import (
	"context"
	"maps"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
)

// Watch is a watch of one controller on objects in workload clusters. The cluster cache starts a watch once per
// connection, so a reconciler can start it in every reconcile.
type Watch struct {
	// Clusters has the connections.
	Clusters clustercache.ClusterCache
	// Controller gets the requests.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// Name identifies the watch. It must be unique in the manager: of two watches with one name, only the first starts.
	Name string
	// Configs reads PoolbootConfigs from the cache of the management cluster, which has HostUserIndex.
	Configs client.Reader
}

// NodesOfConfigs watches Nodes and requests a reconcile of the PoolbootConfig of a changed Node. The PoolbootConfig is
// the one in the Node's annotation. A Node that was deleted and registered again has no annotation; then it is the one
// whose status names the Node or, if it lost its status, the one with the name of the Node. One that is to be adopted
// has none either, and can be that of several PoolbootConfigs.
func (w Watch) NodesOfConfigs(ctx context.Context, cluster client.ObjectKey) error {
	return w.start(ctx, cluster, &corev1.Node{}, func(ctx context.Context, node client.Object) []ctrl.Request {
		return w.configsOfNode(ctx, cluster, node)
	}, predicate.Funcs{UpdateFunc: nodeChanged})
}

// nodeChanged selects the changes of a Node that a decision depends on. It ignores the heartbeats of the kubelet.
func nodeChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.UID != after.UID ||
		before.ResourceVersion == after.ResourceVersion ||
		util.IsNodeReady(before) != util.IsNodeReady(after) ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!maps.Equal(before.Labels, after.Labels) ||
		!maps.Equal(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

func (w Watch) configsOfNode(ctx context.Context, cluster client.ObjectKey, node client.Object) []ctrl.Request {
	if config, ok := record.ConfigOfNode(node); ok {
		return []ctrl.Request{{NamespacedName: config}}
	}
	requests := w.configsOfUser(ctx, cluster, NodeUserPrefix+node.GetName())
	named := &bootstrapv1.PoolbootConfig{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: node.GetName()}
	if err := w.Configs.Get(ctx, key, named, client.UnsafeDisableDeepCopy); err == nil && record.ClusterKey(named) == cluster && !record.HasNode(named) {
		requests = append(requests, ctrl.Request{NamespacedName: key})
	}
	return append(requests, ConfigsOfCluster(ctx, w.Configs, cluster, func(*bootstrapv1.PoolbootConfig) bool { return true },
		client.MatchingFields{AwaitedNodeIndex: node.GetName()})...)
}

// AwaitedNodeIndex is the index of PoolbootConfigs by AwaitedNodes.
const AwaitedNodeIndex = "spec.host.nodeName"

// AwaitedNodes returns the name of the Node that a PoolbootConfig is to adopt, as long as none is on record for it.
func AwaitedNodes(object client.Object) []string {
	if config, ok := object.(*bootstrapv1.PoolbootConfig); ok && record.IsAdopted(config) && !record.HasNode(config) {
		return []string{config.Spec.Host.NodeName}
	}
	return nil
}

// configsOfUser returns requests for the PoolbootConfigs of the Cluster whose hosts can request certificates as a user.
func (w Watch) configsOfUser(ctx context.Context, cluster client.ObjectKey, user string) []ctrl.Request {
	return ConfigsOfCluster(ctx, w.Configs, cluster, func(*bootstrapv1.PoolbootConfig) bool { return true }, client.MatchingFields{HostUserIndex: user})
}

// NodesOfPools watches Nodes and requests a reconcile of the MachineConfigPool that is recorded for the PoolbootConfig
// of a changed Node, as NodesOfConfigs finds it. The requests have a low priority.
func (w Watch) NodesOfPools(ctx context.Context, cluster client.ObjectKey) error {
	return w.handle(ctx, cluster, &corev1.Node{}, fairqueue.EnqueueLow(func(ctx context.Context, node client.Object) (requests []ctrl.Request) {
		for _, request := range w.configsOfNode(ctx, cluster, node) {
			config := &bootstrapv1.PoolbootConfig{}
			if err := w.Configs.Get(ctx, request.NamespacedName, config, client.UnsafeDisableDeepCopy); err == nil {
				requests = append(requests, PoolOfConfig(ctx, w.Configs, config)...)
			}
		}
		return requests
	}), predicate.Funcs{UpdateFunc: nodeChanged})
}

// NodesOfCluster watches Nodes and requests a reconcile of their Cluster.
func (w Watch) NodesOfCluster(ctx context.Context, cluster client.ObjectKey, predicates ...predicate.Predicate) error {
	return w.start(ctx, cluster, &corev1.Node{}, request(cluster), predicates...)
}

// ManagedObjects watches objects of a kind that Poolboot manages in the workload cluster, and requests a reconcile of
// the Cluster. With a name it watches only that object: a workload cluster with several Cluster objects has one for
// each of them. Only metadata is cached.
func (w Watch) ManagedObjects(ctx context.Context, cluster client.ObjectKey, kind schema.GroupVersionKind, name string) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	w.Name += "-" + strings.ToLower(kind.Kind)
	return w.start(ctx, cluster, object, request(cluster), predicate.NewPredicateFuncs(func(object client.Object) bool {
		return name == "" || object.GetName() == name
	}))
}

// request returns a function that maps every object to a request with this key.
func request(key client.ObjectKey) handler.MapFunc {
	return func(context.Context, client.Object) []ctrl.Request { return []ctrl.Request{{NamespacedName: key}} }
}

// NodeUserPrefix is the prefix of the user name of a kubelet; the name of its Node follows.
const NodeUserPrefix = "system:node:"

// HostUserIndex is the index of PoolbootConfigs by HostUsers.
const HostUserIndex = "status.users"

// HostUsers returns the user names with which the host of a PoolbootConfig can request certificates: that of its join
// credential, and that of its kubelet.
func HostUsers(object client.Object) (users []string) {
	config, ok := object.(*bootstrapv1.PoolbootConfig)
	if ok && record.HasCredential(config) {
		users = append(users, bootstrapapi.BootstrapUserPrefix+config.Status.Boot.CredentialID)
	}
	if ok && record.HasNode(config) {
		users = append(users, NodeUserPrefix+config.Status.NodeRef.Name)
	}
	return users
}

// CertificateSigningRequests watches certificate signing requests, and requests a reconcile of the PoolbootConfig whose
// join credential, or whose kubelet for a serving certificate, created one.
func (w Watch) CertificateSigningRequests(ctx context.Context, cluster client.ObjectKey, predicates ...predicate.Predicate) error {
	return w.start(ctx, cluster, &certificatesv1.CertificateSigningRequest{}, func(ctx context.Context, object client.Object) []ctrl.Request {
		request, ok := object.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return nil
		}
		usesCredential := strings.HasPrefix(request.Spec.Username, bootstrapapi.BootstrapUserPrefix)
		if !usesCredential && request.Spec.SignerName != certificatesv1.KubeletServingSignerName {
			return nil
		}
		return w.configsOfUser(ctx, cluster, request.Spec.Username)
	}, predicates...)
}

func (w Watch) start(ctx context.Context, cluster client.ObjectKey, kind client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) error {
	return w.handle(ctx, cluster, kind, handler.EnqueueRequestsFromMapFunc(requests), predicates...)
}

func (w Watch) handle(ctx context.Context, cluster client.ObjectKey, kind client.Object, events handler.EventHandler, predicates ...predicate.Predicate) error {
	return w.Clusters.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         w.Name,
		Watcher:      w.Controller,
		Kind:         kind,
		EventHandler: events,
		Predicates:   predicates,
	}))
}
