package site

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// NodeVersion is one version of a Node that the workload cluster's API server showed to the world.
type NodeVersion struct {
	// Seen is when the watch delivered it.
	Seen time.Time
	// Deleted says that it is the Node's last.
	Deleted bool
	Node    *corev1.Node
}

// NodeHistory is every version of every Node, as one watch saw them.
type NodeHistory struct {
	mu       sync.Mutex
	versions []NodeVersion
}

// RecordNodes starts a history. It ends with ctx.
func RecordNodes(ctx context.Context, workload client.WithWatch) (*NodeHistory, error) {
	h := &NodeHistory{}
	return h, Follow(ctx, workload, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.versions = append(h.versions, NodeVersion{Seen: time.Now(), Deleted: kind == watch.Deleted, Node: node})
	})
}

// Versions are all versions so far, in the order in which the API server made them.
func (h *NodeHistory) Versions() []NodeVersion {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.versions)
}

// Of are the versions of one Node so far.
func (h *NodeHistory) Of(name string) []NodeVersion {
	return slices.DeleteFunc(h.Versions(), func(v NodeVersion) bool { return v.Node.Name != name })
}

// Verdict is what a Node's versions say of its life in its pool.
type Verdict struct {
	// Versions is how many versions there were.
	Versions int
	// Outside is how many of them were not in the pool that the Node ought to be in.
	Outside int
	// BornInPool says that the first version was in that pool.
	BornInPool bool
	// Changes is how often the Node went from one pool, or from none, to another.
	Changes int
}

// Judge holds the versions of a Node against the pool it ought to be in all its life. It decides by labels alone, as a
// machine config controller that sees only Nodes would.
func Judge(versions []NodeVersion, role string, pools []poolv1.MachineConfigPool) Verdict {
	verdict := Verdict{Versions: len(versions)}
	before := ""
	for i, version := range versions {
		now := roleOf(version.Node, pools)
		if now != role {
			verdict.Outside++
		}
		if i == 0 {
			verdict.BornInPool = now == role
		} else if now != before {
			verdict.Changes++
		}
		before = now
	}
	return verdict
}

func roleOf(node *corev1.Node, pools []poolv1.MachineConfigPool) string {
	decision, err := pool.Decide(node.Labels, pools)
	switch {
	case err != nil:
		return fmt.Sprintf("conflict (%v)", err)
	case decision.ControlPlane:
		return "control plane"
	default:
		return decision.Role
	}
}
