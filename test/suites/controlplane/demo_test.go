package controlplane

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

// demoVariable is the environment variable with which the suite prints what it does while it does it.
// "make demo-control-plane" sets it.
const demoVariable = "POOLBOOT_DEMO"

var isDemo = os.Getenv(demoVariable) != ""

// show prints a line in the demo, with the time since the program was started.
func show(format string, args ...any) {
	if isDemo {
		fmt.Printf("%4.0f s  %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
	}
}

var started = time.Now()

// measured reports a result. The demo shows it at once.
func measured(name, format string, args ...any) {
	text, visibility := fmt.Sprintf(format, args...), ReportEntryVisibilityAlways
	if isDemo {
		visibility = ReportEntryVisibilityNever
	}
	AddReportEntry(name, text, visibility)
	show("%s: %s", name, text)
}

// updateWatch follows the updates of the hosts of the control plane by what their Nodes say.
type updateWatch struct {
	mu sync.Mutex // guards the fields below
	// began is when the updates began that have not ended, and states what their hosts do, by the names of the Nodes.
	began  map[string]time.Time
	states map[string]agentv1.State
	// took is how long the updates took that have ended.
	took map[string]time.Duration
	// most is how many hosts were in an update at a time, at most.
	most int
}

// watchUpdates follows updates until the spec ends.
func watchUpdates(ctx context.Context) *updateWatch {
	GinkgoHelper()
	w := &updateWatch{began: map[string]time.Time{}, states: map[string]agentv1.State{}, took: map[string]time.Duration{}}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	DeferCleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for watching.Err() == nil {
			nodes := &corev1.NodeList{}
			if lab.WorkloadClient.List(watching, nodes, client.HasLabels{"node-role.kubernetes.io/control-plane"}) == nil {
				w.look(nodes.Items)
			}
			select {
			case <-watching.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return w
}

func (w *updateWatch) look(nodes []corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range nodes {
		node := &nodes[i]
		since, isKnown := w.began[node.Name]
		isBegun, state := node.Annotations[agentv1.BegunAnnotation] != "", agentv1.State(node.Annotations[agentv1.StateAnnotation])
		switch {
		case isBegun && !isKnown:
			w.began[node.Name] = time.Now()
			show("%s: its turn", node.Name)
		case isKnown && !isBegun:
			w.took[node.Name] = time.Since(since)
			delete(w.began, node.Name)
			show("%s: updated in %.0f s", node.Name, w.took[node.Name].Seconds())
		case isBegun && state != w.states[node.Name] && state != agentv1.Done:
			show("%s: %s", node.Name, state)
		}
		w.states[node.Name] = state
	}
	w.most = max(w.most, len(w.began))
}

// Most returns how many hosts were in an update at a time, at most.
func (w *updateWatch) Most() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// Took returns how long the updates took that have ended, by the names of the Nodes.
func (w *updateWatch) Took() map[string]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.took)
}

// Seconds returns the same as a text, in the order of the names.
func (w *updateWatch) Seconds() string {
	took := w.Took()
	var seconds []string
	for _, name := range slices.Sorted(maps.Keys(took)) {
		seconds = append(seconds, fmt.Sprintf("%.0f", took[name].Seconds()))
	}
	return strings.Join(seconds, ", ")
}
