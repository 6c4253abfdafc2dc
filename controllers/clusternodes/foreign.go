package clusternodes

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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// reportingController is the reporting controller of events.
	reportingController = "clusternodes-controller"

	// watchName identifies the watch on Nodes in the manager.
	watchName = "clusternodes-nodes"
)

// watchNodes watches the Nodes of a Cluster, and returns a client for the workload cluster and the Nodes in its cache,
// which must not be changed.
func (r *Reconciler) watchNodes(ctx context.Context, cluster client.ObjectKey) (client.Client, []corev1.Node, error) {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: watchName}
	if err := watch.NodesOfCluster(ctx, cluster, labelsChanged()); err != nil {
		return nil, nil, err
	}
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return nil, nil, err
	}
	nodes := &corev1.NodeList{}
	err = w.List(ctx, nodes, client.UnsafeDisableDeepCopy)
	return w, nodes.Items, err
}

// checkForeignNodes creates an event about each Node with a problem: a control plane Node in a custom pool, or a Node
// in several custom pools.
func checkForeignNodes(ctx context.Context, w client.Client, cluster client.ObjectKey, nodes []corev1.Node, pools []poolv1.MachineConfigPool) error {
	var errs []error
	for i := range nodes {
		node := &nodes[i]
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
