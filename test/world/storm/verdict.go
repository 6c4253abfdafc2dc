package storm

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// isDisturbed reports whether a version of a Node is unavailable because of Poolboot, or can be at any moment: Poolboot
// told the host to have another revision and the host has neither reached nor given up that one, or Poolboot cordoned
// the Node.
func isDisturbed(node *corev1.Node) bool {
	told, current := node.Annotations[agentv1.DesiredAnnotation], node.Annotations[agentv1.CurrentAnnotation]
	state := agentv1.State(node.Annotations[agentv1.StateAnnotation])
	hasStopped := (state == agentv1.Degraded || state == agentv1.Unreconcilable) && node.Annotations[agentv1.TargetAnnotation] == told
	return told != "" && current != "" && told != current && !hasStopped || node.Annotations[agentv1.CordonedAnnotation] != ""
}

// RolloutJudge watches every version of every Node of a fleet.
type RolloutJudge struct {
	mu        sync.Mutex
	disturbed map[string]bool
	steps     map[string]map[string]time.Time // of the update of each Node
	verdict   RolloutVerdict
	// told and freed are the times at which updates began, and at which their hosts made room for others.
	told, freed []time.Time
}

// RolloutVerdict is the result of a judge.
type RolloutVerdict struct {
	// Versions is the number of versions of Nodes, and MostAway the largest number of Nodes that Poolboot disturbed at
	// one of them. Updates is the number of updates that began.
	Versions, MostAway, Updates int
	// Gaps is the number of versions before which others can be missing. The verdict is only complete without gaps.
	Gaps int
	// Drains is how long hosts waited for their drain, Releases how long until they were uncordoned after the update.
	Drains, Releases []time.Duration
}

// judgeRollouts judges Nodes from now on.
func judgeRollouts(ctx context.Context, workload client.WithWatch, concerned func(*corev1.Node) bool) (*RolloutJudge, error) {
	j := &RolloutJudge{disturbed: map[string]bool{}, steps: map[string]map[string]time.Time{}}
	return j, site.Follow(ctx, workload, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
		if concerned(node) {
			j.see(node, kind)
		}
	})
}

func (j *RolloutJudge) see(node *corev1.Node, kind watch.EventType) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, is, was := time.Now(), kind != watch.Deleted && isDisturbed(node), j.disturbed[node.Name]
	j.verdict.Versions++
	if kind == site.Gap {
		j.verdict.Gaps++
	}
	switch {
	case is && !was:
		j.disturbed[node.Name], j.steps[node.Name] = true, map[string]time.Time{}
		j.verdict.Updates++
		j.told = append(j.told, now)
	case was && !is:
		delete(j.disturbed, node.Name)
		j.freed = append(j.freed, now)
	}
	j.verdict.MostAway = max(j.verdict.MostAway, len(j.disturbed))
	j.measure(node, now, was && !is)
}

// measure records how long Poolboot needed for its part of the update of a host.
func (j *RolloutJudge) measure(node *corev1.Node, now time.Time, isFree bool) {
	steps := j.steps[node.Name]
	if steps == nil {
		return
	}
	reach := func(step string, has bool) bool {
		if _, before := steps[step]; before || !has {
			return false
		}
		steps[step] = now
		return true
	}
	told := node.Annotations[agentv1.DesiredAnnotation]
	is := func(state agentv1.State) bool {
		return node.Annotations[agentv1.StateAnnotation] == string(state) && node.Annotations[agentv1.TargetAnnotation] == told
	}
	reach("draining", is(agentv1.Draining))
	if reach("drained", node.Annotations[agentv1.DrainedAnnotation] == told) && !steps["draining"].IsZero() {
		j.verdict.Drains = append(j.verdict.Drains, now.Sub(steps["draining"]))
	}
	reach("done", is(agentv1.Done))
	if isFree && !steps["done"].IsZero() {
		j.verdict.Releases = append(j.verdict.Releases, now.Sub(steps["done"]))
		delete(j.steps, node.Name)
	}
}

// Verdict returns the verdict so far.
func (j *RolloutJudge) Verdict() RolloutVerdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.verdict
	v.Drains, v.Releases = slices.Clone(v.Drains), slices.Clone(v.Releases)
	return v
}

// Begin forgets how many Nodes were away up to now.
func (j *RolloutJudge) Begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.verdict.MostAway = len(j.disturbed)
}

// Waits returns how long it took until the next host was told after one had made room, if so many can be updated at a
// time.
func (j *RolloutJudge) Waits(maxUnavailable int) (waits []time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := maxUnavailable; i < len(j.told) && i-maxUnavailable < len(j.freed); i++ {
		waits = append(waits, j.told[i].Sub(j.freed[i-maxUnavailable]))
	}
	return waits
}

// String formats a verdict in one line.
func (v RolloutVerdict) String() string {
	return fmt.Sprintf("%d updates, %d versions of Nodes with %d gaps, at most %d away", v.Updates, v.Versions, v.Gaps, v.MostAway)
}
