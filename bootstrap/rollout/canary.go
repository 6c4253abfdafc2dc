package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// maxCanaries is how many canaries a message names.
const maxCanaries = 3

// NextAfter returns the names of the hosts that Next returns, without those that must wait for the canaries of their
// pool, and why these wait, or nil if none does. The canaries are those that the selector selects, or the first hosts
// that get their Target, whichever these are. So a host that failed before and gets the correction first is one, and
// the canaries of a change need not be recorded. A host that is skipped is none, unless it has completed its update: if
// all that the selector selects are skipped, the others wait for none.
func NextAfter(canary *poolv1.CanarySettings, hosts []Candidate, maxUnavailable int, now time.Time) (chosen []string, closed *ClosedGate) {
	if closed = closedByCanary(canary, hosts, now); closed == nil {
		return Next(hosts, maxUnavailable), nil
	}
	begun, told, held := map[string]bool{}, 0, false
	hosts = slices.Clone(hosts)
	for i := range hosts {
		h := &hosts[i]
		begun[h.Name] = h.HasBegun
		switch {
		case h.IsSkipped:
		case h.Target != "" && h.Desired == h.Target:
			told++
		case canary.NodeSelector != nil && !h.IsCanary && !h.HasBegun:
			held = held || !h.IsExcluded && !h.IsHeld
			h.IsExcluded = true
		}
	}
	left := int(canary.Hosts) - told
	for _, name := range Next(hosts, maxUnavailable) {
		switch {
		case canary.NodeSelector != nil || begun[name]:
		case left > 0:
			left--
		default:
			held = true
			continue
		}
		chosen = append(chosen, name)
	}
	if !held {
		closed = nil
	}
	return chosen, closed
}

// closedByCanary returns why hosts that are no canaries begin no update, or nil.
func closedByCanary(canary *poolv1.CanarySettings, hosts []Candidate, now time.Time) *ClosedGate {
	if !canary.IsDefined() {
		return nil
	}
	closed := func(format string, args ...any) *ClosedGate {
		return &ClosedGate{poolv1.CanaryPendingReason, "others wait for the canaries of the pool (spec.updates.canary), and " + fmt.Sprintf(format, args...)}
	}
	var completed []time.Time
	var pending []string
	isSelected := false
	for i := range hosts {
		h := &hosts[i]
		isTold := h.Target != "" && h.Desired == h.Target
		isSelected = isSelected || h.IsCanary
		switch {
		case canary.NodeSelector != nil && !h.IsCanary:
		case isTold && !h.CompletedTime.IsZero():
			completed = append(completed, h.CompletedTime)
		case h.IsSkipped:
		case isTold || canary.NodeSelector != nil:
			pending = append(pending, h.Name)
		}
	}
	number := int(canary.Hosts)
	if canary.NodeSelector != nil {
		number = len(completed) + len(pending)
	}
	switch {
	case number == 0 && isSelected:
		return nil
	case number == 0:
		return closed("nodeSelector selects no Node of the pool: label one, or correct nodeSelector")
	case len(completed) < number && len(pending) == 0:
		return closed("%d of %d have completed their update: wait for the next", len(completed), number)
	case len(completed) < number:
		return closed("%d of %d have completed their update: see what these do: %s", len(completed), number, excerpt.List(maxCanaries, pending))
	}
	slices.SortFunc(completed, time.Time.Compare)
	if until := completed[number-1].Add(time.Duration(ptr.Deref(canary.SoakSeconds, 0)) * time.Second); until.After(now) {
		return closed("they must run it until %s (soakSeconds): wait, or set fewer seconds", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// setCanary sets whether the host is a canary of its pool, and since when it has completed its update: it has its
// target, its Node is Ready, and its condition Updated is true. The latest of these times counts, because the record
// can be a moment older than the Node. None of them survives clusterctl move, after which canaries soak again.
func (h *Host) setCanary(in *Candidate, canary *poolv1.CanarySettings) {
	if selector, err := metav1.LabelSelectorAsSelector(canary.NodeSelector); err == nil && h.Node != nil && canary.NodeSelector != nil {
		in.IsCanary = selector.Matches(labels.Set(h.Node.Labels))
	}
	updated := conditions.Get(h.Config, bootstrapv1.UpdatedCondition)
	if in.Desired != in.Target || in.Progress != Done || in.IsUnavailable || updated != nil && updated.Status != metav1.ConditionTrue {
		return
	}
	latest := func(t metav1.Time) {
		if t.After(in.CompletedTime) {
			in.CompletedTime = t.Time
		}
	}
	if updated != nil {
		latest(updated.LastTransitionTime)
	}
	for _, update := range h.Config.Status.Update.History {
		latest(ptr.Deref(update.CompletionTime, metav1.Time{}))
	}
	for _, c := range h.Node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			latest(c.LastTransitionTime)
		}
	}
}
