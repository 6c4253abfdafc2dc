package workload

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Watch is one controller's interest in the objects of a workload cluster. The cluster cache adds it once a connection,
// so Reconcile simply starts it every time.
type Watch struct {
	// Clusters holds the connection.
	Clusters clustercache.ClusterCache
	// Controller gets a request for each PoolbootConfig concerned.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// Name tells this watch from every other in the manager: of two with one name only the first is started.
	Name string
	// Configs reads PoolbootConfigs in the management cluster, best from a cache.
	Configs client.Reader
}

// Nodes sends the PoolbootConfig of every Node that changes in a way the predicates let through: the config that the
// Node's annotation names, and without one, as on a Node that registered anew, the config whose status names the Node
// or, if it has lost its record, whose own name it is.
func (w Watch) Nodes(ctx context.Context, cluster client.ObjectKey, predicates ...predicate.Predicate) error {
	return w.start(ctx, cluster, &corev1.Node{}, func(ctx context.Context, node client.Object) []ctrl.Request {
		if config, made := ConfigOfNode(node); made {
			return []ctrl.Request{{NamespacedName: config}}
		}
		return ConfigsOfCluster(ctx, w.Configs, cluster, func(config *bootstrapv1.PoolbootConfig) bool {
			if !config.Status.NodeRef.IsDefined() {
				return config.Name == node.GetName()
			}
			return config.Status.NodeRef.Name == node.GetName()
		})
	}, predicates...)
}

// EveryNode sends the Cluster for every Node of it that changes in a way the predicates let through.
func (w Watch) EveryNode(ctx context.Context, cluster client.ObjectKey, predicates ...predicate.Predicate) error {
	return w.start(ctx, cluster, &corev1.Node{}, func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: cluster}}
	}, predicates...)
}

// Own sends the Cluster for every object of a kind that Poolboot keeps there and that is made, changed or deleted. It
// holds their metadata alone.
func (w Watch) Own(ctx context.Context, cluster client.ObjectKey, kind schema.GroupVersionKind) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	w.Name += "-" + strings.ToLower(kind.Kind)
	return w.start(ctx, cluster, object, func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: cluster}}
	})
}

// NodeUserPrefix and its Node's name is the user that a kubelet is.
const NodeUserPrefix = "system:node:"

// HostUserIndex indexes PoolbootConfigs by HostUsers.
const HostUserIndex = "status.users"

// HostUsers are the users as which the host of a PoolbootConfig may ask for certificates: that of its join credential,
// and its Node's.
func HostUsers(object client.Object) (users []string) {
	config, is := object.(*bootstrapv1.PoolbootConfig)
	if is && config.Status.Boot.CredentialID != "" {
		users = append(users, bootstrapapi.BootstrapUserPrefix+config.Status.Boot.CredentialID)
	}
	if is && config.Status.NodeRef.IsDefined() {
		users = append(users, NodeUserPrefix+config.Status.NodeRef.Name)
	}
	return users
}

// CertificateSigningRequests sends the PoolbootConfig whose join credential made a certificate signing request, or the
// kubelet of whose Node asks for its serving certificate. Configs must have HostUserIndex.
func (w Watch) CertificateSigningRequests(ctx context.Context, cluster client.ObjectKey, predicates ...predicate.Predicate) error {
	return w.start(ctx, cluster, &certificatesv1.CertificateSigningRequest{}, func(ctx context.Context, object client.Object) []ctrl.Request {
		request, is := object.(*certificatesv1.CertificateSigningRequest)
		if !is {
			return nil
		}
		byToken := strings.HasPrefix(request.Spec.Username, bootstrapapi.BootstrapUserPrefix)
		if !byToken && request.Spec.SignerName != certificatesv1.KubeletServingSignerName {
			return nil
		}
		return ConfigsOfCluster(ctx, w.Configs, cluster, func(*bootstrapv1.PoolbootConfig) bool { return true }, client.MatchingFields{HostUserIndex: request.Spec.Username})
	}, predicates...)
}

func (w Watch) start(ctx context.Context, cluster client.ObjectKey, kind client.Object, configs handler.MapFunc, predicates ...predicate.Predicate) error {
	return w.Clusters.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         w.Name,
		Watcher:      w.Controller,
		Kind:         kind,
		EventHandler: handler.EnqueueRequestsFromMapFunc(configs),
		Predicates:   predicates,
	}))
}
