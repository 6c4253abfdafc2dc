package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// maxHolders is how many hosts that take places, or are next, are named.
const maxHolders = 5

// describeHolders names hosts that take places of maxUnavailable, each with the reason.
func describeHolders(members []member) string {
	var holders []string
	for _, m := range members {
		if m.place != "" {
			why, _, _ := strings.Cut(m.place, ": ")
			why, _, _ = strings.Cut(why, ", so ")
			holders = append(holders, fmt.Sprintf("%s (%s)", m.Name, why))
		}
	}
	return excerpt.List(maxHolders, holders)
}

// describePlace returns why a host of Poolboot takes a place of maxUnavailable, or "".
func describePlace(m *rollout.Candidate, h *rollout.Host) string {
	switch {
	case h.Report.NotUnderstood != "":
		return h.Report.NotUnderstood
	case m.HasSlot && m.Desired != h.Told():
		return "it is about to be told what to run"
	case m.Progress == rollout.InUpdate:
		return "it is in an update: " + string(h.Report.State)
	case h.IsOnlyClaimed():
		return fmt.Sprintf("it reports %s for an update that has ended or was not begun", h.Report.State)
	case m.Progress == rollout.Unknown && h.Report.State == agentv1.Done && h.Report.Reason != "":
		return "its agent cannot begin, which it retries: " + h.Report.Reason
	case m.Progress == rollout.Unknown:
		return cmp.Or(describeMalformed(h.Node), "it was told what to run, and has not answered")
	case h.MachineWork() != rollout.NoMachineWork:
		return h.WhyMachineFirst()
	case h.Node == nil:
		return "its Node does not exist"
	case !h.Node.DeletionTimestamp.IsZero():
		return "its Node is being deleted"
	case !util.IsNodeReady(h.Node):
		return describeNotReady(h.Node)
	case h.Node.Spec.Unschedulable && rollout.IsCordonedByUpdate(h.Node):
		return "it is cordoned for its update"
	case h.Node.Spec.Unschedulable:
		return "it is cordoned: kubectl uncordon " + h.Node.Name
	case m.Progress == rollout.Failed && h.Report.State == agentv1.Unreconcilable:
		return "its update is not possible on a running host: " + cmp.Or(h.Report.Reason, "its agent reports no reason")
	case m.Progress == rollout.Failed && h.Progress() == rollout.Done:
		return "units of its configuration do not do their work: " + h.Report.DescribeFailingUnits()
	case m.Progress == rollout.Failed:
		return "its update failed: " + cmp.Or(h.Report.Reason, "its agent reports no reason")
	}
	return ""
}

// describeNotReady returns why a Node is not Ready.
func describeNotReady(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return withDetail("its Node is not Ready", c.Message)
		}
	}
	return "its Node is not Ready: it has no condition Ready"
}

// withDetail adds text from a host or a workload cluster to a reason, unless the text is empty.
func withDetail(why, detail string) string {
	if detail = rollout.Clean(detail, agentv1.MaxReason); detail == "" {
		return why
	}
	return why + ": " + detail
}

// states are those that agents report.
var states = []string{string(agentv1.Done), string(agentv1.Draining), string(agentv1.Applying), string(agentv1.Rebooting), string(agentv1.Verifying),
	string(agentv1.Degraded), string(agentv1.Unreconcilable)}

// describeMalformed returns which annotation of a Node has a value that means nothing, or "".
func describeMalformed(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	for _, key := range []string{agentv1.DesiredAnnotation, agentv1.CurrentAnnotation, agentv1.TargetAnnotation} {
		if value, has := node.Annotations[key]; has && !rollout.IsRevision(value) {
			return fmt.Sprintf("its annotation %s is %q: use a revision, which has 64 hex digits in lower case", key, rollout.Clean(value, maxValue))
		}
	}
	if state, has := node.Annotations[agentv1.StateAnnotation]; has && !slices.Contains(states, state) {
		last := len(states) - 1
		return fmt.Sprintf("its annotation %s is %q: use %s or %s", agentv1.StateAnnotation, rollout.Clean(state, maxValue), strings.Join(states[:last], ", "), states[last])
	}
	return ""
}

// maxValue is how many bytes of the value of an annotation are printed.
const maxValue = 100
