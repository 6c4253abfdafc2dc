// Package foreignnode checks the Nodes of a workload cluster that Poolboot did not boot. It creates an event about a
// Node whose labels no pool can satisfy: a control plane Node in a custom pool, or a Node in several custom pools. It
// does not change these Nodes. Nodes that Poolboot booted are the responsibility of controllers/host.
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
	// reportingController is the reporting controller of events.
	reportingController = "foreignnode-controller"

	// watchName identifies the watch on Nodes in the manager.
	watchName = "foreignnode-nodes"
)

// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Reconciler reconciles Clusters. It checks all Nodes of a Cluster that Poolboot did not boot.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that Clusters must have; empty means
	// all.
	WatchFilterValue string

	// controller gets the requests of the watches in workload clusters.
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
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(workload.RequestClusterOfPool),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("foreignnode", workload.RequestCluster)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfCluster)).
		Build(r)
	return err
}

// Reconcile checks the Nodes of a Cluster that has pools.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	_, pools, err := workload.ClusterWithPools(ctx, r.Client, req.NamespacedName, r.WatchFilterValue)
	if err != nil || len(pools) == 0 {
		return ctrl.Result{}, err
	}
	err = r.checkNodes(ctx, req.NamespacedName, pools)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the cluster source triggers a reconcile after the connection is established
	}
	return ctrl.Result{}, err
}

// checkNodes creates an event about each Node with a problem.
func (r *Reconciler) checkNodes(ctx context.Context, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
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
		if !isForeign(node) {
			continue
		}
		if reason, note := problemOf(node, pools); reason != "" {
			errs = append(errs, createEvent(ctx, w, cluster, node, reason, note))
		}
	}
	return errors.Join(errs...)
}

// isForeign reports whether Poolboot did not boot a Node.
func isForeign(node client.Object) bool {
	_, ours := record.ConfigOfNode(node)
	return !ours
}

// labelsChanged matches new foreign Nodes, and updates of their labels.
func labelsChanged() predicate.Predicate {
	never := func(event.DeleteEvent) bool { return false }
	return predicate.And(predicate.NewPredicateFuncs(isForeign), predicate.Funcs{DeleteFunc: never, UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}})
}

// problemOf returns the reason and note of an event about the labels of a Node, and "" if there is no problem.
func problemOf(node *corev1.Node, pools []poolv1.MachineConfigPool) (reason, note string) {
	decision, err := pool.Decide(node.Labels, pools)
	var conflict *pool.ConflictError
	switch {
	case errors.As(err, &conflict):
		return poolv1.EventPoolConflict, err.Error()
	case len(decision.Unsupported) > 0:
		return poolv1.EventCustomPoolUnsupported, fmt.Sprintf("a control plane Node cannot be in a custom pool, but its labels match %s: "+
			"these pools have no effect on it; remove their labels", strings.Join(decision.Unsupported, " and "))
	}
	return "", ""
}

// createEvent creates an event about a Node. It creates the same event once, until the workload cluster deletes it.
func createEvent(ctx context.Context, w client.Client, cluster client.ObjectKey, node *corev1.Node, reason, note string) error {
	hash := sha256.Sum256([]byte(string(node.UID) + note))
	err := w.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: node.Name + "." + hex.EncodeToString(hash[:8])},
		EventTime:  metav1.NewMicroTime(time.Now()),
		Type:       corev1.EventTypeWarning, Reason: reason, Note: note, Action: "DecidePool",
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		ReportingController: reportingController, ReportingInstance: "manager",
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil && reason == poolv1.EventPoolConflict {
		metrics.PoolConflict(cluster.String(), metrics.ConflictNode)
	}
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("No pool can satisfy the labels of a Node", "Node", node.Name, "reason", reason, "note", note)
	}
	return err
}
