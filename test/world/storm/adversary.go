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

// order is what the adversary writes on a Node outside its custom pool: the annotation by which the Machine Config
// Operator's node controller tells a machine to reboot into another configuration.
const order = `{"metadata":{"annotations":{"machineconfiguration.openshift.io/desiredConfig":"rendered-worker"}}}`

// Verdict is what an adversary saw and did.
type Verdict struct {
	// Nodes is how many Nodes there were, Versions how many versions of them the API server showed.
	Nodes, Versions int
	// Outside is how many of the versions were outside the custom pool.
	Outside int
	// Orders is how often a Node was told to take the worker pool's configuration: once each time it was first seen
	// outside. On real hardware each costs two reboots, there and back.
	Orders int
}

// String is a verdict in a few words.
func (v Verdict) String() string {
	return fmt.Sprintf("%d Nodes, %d versions, %d outside their pool, %d orders given", v.Nodes, v.Versions, v.Outside, v.Orders)
}

// outside is the adversary's rule, made of nothing but the one label: a Node without it is a plain worker.
func outside(node *corev1.Node) bool {
	_, in := node.Labels["node-role.kubernetes.io/"+role]
	return !in
}

// adversary orders the worker pool's configuration the moment it sees a Node outside its custom pool.
type adversary struct {
	workload client.Client
	orders   sync.WaitGroup

	mu    sync.Mutex
	seen  Verdict
	nodes map[types.UID]bool // whether the Node's last version was outside
	ended bool
	err   error
}

// watchAsAdversary starts an adversary of all Nodes that are concerned. It sees each version, by a watch without a
// cache that would skip some, and tells saw of it.
func watchAsAdversary(ctx context.Context, workload client.WithWatch, concerned func(*corev1.Node) bool, saw func(*corev1.Node)) (*adversary, error) {
	a := &adversary{workload: workload, nodes: map[types.UID]bool{}}
	return a, site.Follow(ctx, workload, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
		if kind == watch.Deleted || !concerned(node) {
			return
		}
		if a.judge(node) {
			go a.order(ctx, node.Name)
		}
		saw(node)
	})
}

// judge counts a version and says whether the Node has just left its pool, or came without: then an order is due.
func (a *adversary) judge(node *corev1.Node) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, now := a.nodes[node.UID], outside(node)
	a.nodes[node.UID] = now
	a.seen.Versions++
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

// verdict returns what came of it. The adversary gives no more orders.
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
