package storm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// order is the adversary's patch of a Node outside its custom pool: the annotation with which the Machine Config
// Operator's node controller makes a machine reboot into another configuration.
const order = `{"metadata":{"annotations":{"machineconfiguration.openshift.io/desiredConfig":"rendered-worker"}}}`

// Verdict has the counts of an adversary.
type Verdict struct {
	// Nodes is the number of Nodes, Versions the number of their versions.
	Nodes, Versions int
	// Gaps is the number of versions before which others can be missing.
	Gaps int
	// Outside is the number of versions outside the custom pool.
	Outside int
	// Orders is the number of patches to the worker pool's configuration: one each time a Node leaves its pool. On real
	// hardware each costs two reboots.
	Orders int
}

// String formats a verdict.
func (v Verdict) String() string {
	return fmt.Sprintf("%d Nodes, %d versions with %d gaps, %d outside their pool, %d orders given", v.Nodes, v.Versions, v.Gaps, v.Outside, v.Orders)
}

// outside is the adversary's rule: a Node without the role label is a plain worker.
func outside(node *corev1.Node) bool {
	_, in := node.Labels["node-role.kubernetes.io/"+role]
	return !in
}

// adversary patches a Node to the worker pool's configuration as soon as it sees the Node outside its custom pool.
type adversary struct {
	workload client.Client
	orders   sync.WaitGroup

	mu    sync.Mutex
	seen  Verdict
	nodes map[types.UID]bool // whether the Node's last version was outside
	ended bool
	err   error
}

// watchAsAdversary starts an adversary for all concerned Nodes. It watches without a cache, which would skip versions,
// and calls saw with each version.
func watchAsAdversary(ctx context.Context, workload client.WithWatch, concerned func(*corev1.Node) bool, saw func(*corev1.Node)) (*adversary, error) {
	a := &adversary{workload: workload, nodes: map[types.UID]bool{}}
	return a, site.Follow(ctx, workload, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
		if kind == watch.Deleted || !concerned(node) {
			return
		}
		if a.judge(node, kind == site.Gap) {
			go a.order(ctx, node.Name)
		}
		saw(node)
	})
}

// judge counts a version and reports whether an order is due, because the Node has left its pool or is new and outside.
func (a *adversary) judge(node *corev1.Node, isAfterGap bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, now := a.nodes[node.UID], outside(node)
	a.nodes[node.UID] = now
	a.seen.Versions++
	if isAfterGap {
		a.seen.Gaps++
	}
	if now {
		a.seen.Outside++
	}
	due := now && !was && !a.ended
	if due {
		a.orders.Add(1)
	}
	return due
}

func (a *adversary) order(ctx context.Context, name string) {
	defer a.orders.Done()
	err := a.workload.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, []byte(order)))
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.seen.Orders++
	case !apierrors.IsNotFound(err):
		a.err = errors.Join(a.err, fmt.Errorf("the adversary's order to Node %s: %w", name, err))
	}
}

// verdict stops the adversary and returns its verdict.
func (a *adversary) verdict() (Verdict, error) {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.orders.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen.Nodes = len(a.nodes)
	return a.seen, a.err
}
