package site

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// NodeVersion is a version of a Node that a watch received.
type NodeVersion struct {
	// Seen is the time at which the watch received it.
	Seen time.Time
	// Deleted reports that the Node was deleted.
	Deleted bool
	Node    *corev1.Node
}

// NodeHistory has each version of all Nodes that a watch received.
type NodeHistory struct {
	mu       sync.Mutex
	versions []NodeVersion
}

// RecordNodes records a history until ctx is done. It panics if the history has a gap: nobody could judge it.
func RecordNodes(ctx context.Context, workload client.WithWatch) (*NodeHistory, error) {
	h := &NodeHistory{}
	return h, Follow(ctx, workload, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
		if kind == Gap {
			panic("versions of Node " + node.Name + " are missing")
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.versions = append(h.versions, NodeVersion{Seen: time.Now(), Deleted: kind == watch.Deleted, Node: node})
	})
}

// Versions returns all versions so far, in the order of the API server.
func (h *NodeHistory) Versions() []NodeVersion {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.versions)
}

// Of returns the versions of a Node so far.
func (h *NodeHistory) Of(name string) []NodeVersion {
	return slices.DeleteFunc(h.Versions(), func(v NodeVersion) bool { return v.Node.Name != name })
}

// Verdict reports whether the versions of a Node were in its pool.
type Verdict struct {
	// Versions is the number of versions.
	Versions int
	// Outside is the number of versions outside the expected pool.
	Outside int
	// BornInPool reports whether the first version was in the expected pool.
	BornInPool bool
	// Changes is the number of changes of the Node's pool.
	Changes int
}

// Judge compares the pool of each version of a Node with the expected pool. It decides by labels only, as a machine
// config controller does.
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

// IsAway reports whether a Node can't get Pods: it is cordoned or not Ready.
func IsAway(node *corev1.Node) bool { return node.Spec.Unschedulable || !util.IsNodeReady(node) }

// MostAway returns how many of these Nodes were away or deleted at a time, at every version since a time. It begins
// when all of them were available at a time for the first time: they are away while they boot.
func MostAway(versions []NodeVersion, since time.Time, nodes ...string) (most int) {
	away, begun := sets.New(nodes...), false
	for _, version := range versions {
		name := version.Node.Name
		switch {
		case !slices.Contains(nodes, name):
			continue
		case version.Deleted || IsAway(version.Node):
			away.Insert(name)
		default:
			away.Delete(name)
		}
		begun = begun || away.Len() == 0
		if begun && !version.Seen.Before(since) {
			most = max(most, away.Len())
		}
	}
	return most
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
