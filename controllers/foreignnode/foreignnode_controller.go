// Package foreignnode tells, at the Nodes of a workload cluster that Poolboot did not boot, that their labels ask for
// what no pool can give: a control plane in a custom pool, or several custom pools. It writes events about such Nodes
// and nothing on them. Nodes that Poolboot booted are those of controllers/node.
package foreignnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// reporter is who events say they are from.
	reporter = "poolboot.cluster.x-k8s.io/foreignnode-controller"

	// watchName tells the watch on Nodes from every other in the manager.
	watchName = "foreignnode-nodes"
)

// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Reconciler reconciles Clusters: all Nodes of one that Poolboot did not boot.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Clusters must have; empty means
	// all.
	WatchFilterValue string

	// controller is where the watches of workload clusters lead.
	controller controller.Controller
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.ClusterCache == nil {
		return errors.New("foreignnode controller: Client and ClusterCache must be set")
	}
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("foreignnode").
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, p client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: workload.ClusterOfPool(p)}}
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("foreignnode", func(_ context.Context, cluster client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
		})).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfCluster)).
		Build(r)
	return err
}

// Reconcile looks at the Nodes of one Cluster that has pools.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	_, pools, err := workload.ClusterWithPools(ctx, r.Client, req.NamespacedName, r.WatchFilterValue)
	if err != nil || len(pools) == 0 {
		return ctrl.Result{}, err
	}
	err = r.look(ctx, req.NamespacedName, pools)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the cluster source leads here again once there is a connection
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) look(ctx context.Context, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: watchName}
	if err := watch.NodesOfCluster(ctx, cluster, labelsChanged()); err != nil {
		return err
	}
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := w.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var errs []error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if reason, note := trouble(node, pools); reason != "" && foreign(node) {
			errs = append(errs, tell(ctx, w, cluster, node, reason, note))
		}
	}
	return errors.Join(errs...)
}

// foreign says whether Poolboot did not boot a Node.
func foreign(node client.Object) bool {
	_, ours := record.ConfigOfNode(node)
	return !ours
}

// labelsChanged lets those changes of a foreign Node through on which its pool rests.
func labelsChanged() predicate.Predicate {
	never := func(event.DeleteEvent) bool { return false }
	return predicate.And(predicate.NewPredicateFuncs(foreign), predicate.Funcs{DeleteFunc: never, UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}})
}

// trouble says what is wrong with a Node's labels: the reason and note of an event; "" when nothing is.
func trouble(node *corev1.Node, pools []poolv1.MachineConfigPool) (reason, note string) {
	decision, err := pool.Decide(node.Labels, pools)
	var conflict *pool.ConflictError
	switch {
	case errors.As(err, &conflict):
		return poolv1.EventPoolConflict, err.Error()
	case len(decision.Unsupported) > 0:
		return poolv1.EventCustomPoolUnsupported, fmt.Sprintf("a control plane can't be in the pools that its labels ask for: %s: "+
			"it gets nothing of them; remove those labels", strings.Join(decision.Unsupported, " and "))
	}
	return "", ""
}

// tell makes an event about a Node, once for each note for as long as the workload cluster keeps events.
func tell(ctx context.Context, w client.Client, cluster client.ObjectKey, node *corev1.Node, reason, note string) error {
	hash := sha256.Sum256([]byte(string(node.UID) + note))
	err := w.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: node.Name + "." + hex.EncodeToString(hash[:8])},
		EventTime:  metav1.NewMicroTime(time.Now()),
		Type:       corev1.EventTypeWarning, Reason: reason, Note: note, Action: "DecidePool",
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		ReportingController: reporter, ReportingInstance: "manager",
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil && reason == poolv1.EventPoolConflict {
		metrics.PoolConflict(cluster.String(), metrics.ConflictNode)
	}
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("The labels of a Node ask for what no pool can give", "Node", node.Name, "reason", reason, "note", note)
	}
	return err
}
