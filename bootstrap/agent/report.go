package agent

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// reportTimeout is how long the API server may take for a report.
const reportTimeout = 10 * time.Second

// report is what the agent tells about the host.
type report struct {
	// target is the revision that state and reason are about. It is empty until the first assignment was taken.
	target string
	state  agentv1.State
	reason string
	drift  string
	// undoing is true while the update to target is undone.
	undoing bool
	// effect is the value of agentv1.EffectAnnotation, or "" while no update was planned since the agent started.
	effect string
	// staging is the value of agentv1.StagingAnnotation while an update is staged, or "".
	staging string
	// preview is the value of agentv1.PreviewAnnotation, or "".
	preview string
	// problem is why the agent can't go on at the moment, and tries again.
	problem string
	// notAccepted is why the config server does not accept the host, "" if it did the last time.
	notAccepted string
}

func (r *report) set(target string, state agentv1.State, reason string) {
	r.target, r.state, r.reason, r.undoing = target, state, shorten(reason, agentv1.MaxReason), false
}

// setUndo sets what is reported about an update that is undone.
func (r *report) setUndo(target string, state agentv1.State, reason string) {
	r.set(target, state, reason)
	r.undoing = true
}

// setUpdate sets what is reported about an update that is carried out.
func (r *report) setUpdate(u *hostUpdate, state agentv1.State) {
	r.set(u.after.revision, state, u.reason())
	r.effect = u.after.revision + " " + string(u.plan.Effect())
	if state == agentv1.Draining && !u.plan.Drains() {
		r.effect += " " + agentv1.WithoutDrain
	}
}

// addFullReboot adds why the host reboots fully, at the end: the manager finds it there.
func (r *report) addFullReboot(j journal) {
	if j.FullReboot != "" {
		r.reason = strings.TrimSpace(shorten(r.reason, agentv1.MaxReason-len(j.FullReboot)-1) + "\n" + j.FullReboot)
	}
}

func (r *report) is(target string, state agentv1.State) bool {
	return r.target == target && r.state == state
}

// annotations returns the annotations that the Node should have, "" for those that it should not have. An agent that
// has just started does not know its state yet, and leaves the state that was reported last. The version of the report
// goes with a report only.
func (a *Agent) annotations() map[string]string {
	annotations := map[string]string{
		agentv1.CurrentAnnotation: a.journal.Current, agentv1.UnsupportedAnnotation: strings.Join(a.Capabilities.Unsupported(), " "),
	}
	if a.Program != nil {
		annotations[agentv1.AgentAnnotation], _, _ = a.Program.Running()
		annotations[agentv1.BootAnnotation] = a.Clock.BootID()
	}
	reason := shorten(strings.TrimSpace(a.report.reason+"\n"+cmp.Or(a.report.problem, a.report.notAccepted)), agentv1.MaxReason)
	if a.report.target != "" || reason != "" {
		annotations[agentv1.ReasonAnnotation] = reason
	}
	if a.report.target != "" {
		annotations[agentv1.TargetAnnotation], annotations[agentv1.StateAnnotation] = a.report.target, string(a.report.state)
		annotations[agentv1.UndoingAnnotation] = ""
	}
	if a.report.undoing {
		annotations[agentv1.UndoingAnnotation] = a.report.target
	}
	if a.current != nil {
		annotations[agentv1.StagingAnnotation] = cmp.Or(a.report.staging, a.journal.Current)
	}
	if a.current != nil && a.report.staging == "" { // what was next is not next any more
		a.report.preview = ""
	}
	annotations[agentv1.PreviewAnnotation] = a.report.preview
	if a.report.effect != "" {
		annotations[agentv1.EffectAnnotation] = a.report.effect
	}
	if a.current != nil {
		annotations[agentv1.DriftAnnotation], annotations[agentv1.OutdatedDisksAnnotation] = a.report.drift, a.current.outdated
	}
	if a.rebootNeed.isKnown {
		annotations[agentv1.RebootRequiredAnnotation] = a.rebootNeed.report(a.Clock.BootID())
	}
	if a.units.isKnown {
		annotations[agentv1.FailingUnitsAnnotation] = a.units.report
	}
	for _, value := range annotations {
		if value != "" {
			annotations[agentv1.ReportVersionAnnotation] = strconv.Itoa(agentv1.ReportVersion)
			break
		}
	}
	return annotations
}

// publish reports what changed since the Node was seen.
func (a *Agent) publish(ctx context.Context, node Node) error {
	changed := a.changed(node)
	if !node.Known || len(changed) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return a.Cluster.Annotate(limited, changed)
}

// accept reports that the host changes to a revision, unless it was told to have another one since the Node was seen.
// Until an update is reported, the manager can take it back, and another host can begin one.
func (a *Agent) accept(ctx context.Context, node Node, revision string) error {
	if !node.Known {
		return fmt.Errorf("the update begins when the API server answers: %s", node.Problem)
	}
	limited, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := a.Cluster.Accept(limited, revision, a.changed(node)); err != nil {
		return fmt.Errorf("the update begins when its report is accepted: %w", err)
	}
	return nil
}

// changed returns what changed since the Node was seen: annotations with their values, and nil for those that it should
// not have.
func (a *Agent) changed(node Node) map[string]*string {
	changed := map[string]*string{}
	for name, want := range a.annotations() {
		if got := node.Annotations[name]; got == want {
			continue
		}
		if want == "" {
			changed[name] = nil
		} else {
			changed[name] = &want
		}
	}
	return changed
}

// whereDetailsAre returns where it is what programs wrote before they failed, "" if no error of a program has that.
func whereDetailsAre(err error) string {
	if command.Detail(err) == err.Error() {
		return ""
	}
	return "; what the program wrote is in the log: on the host, see journalctl -u " + ignition.AgentUnit
}

// shorten makes a text fit into a number of bytes, and replaces what does not print. It keeps the beginning.
func shorten(text string, size int) string { return excerpt.Of(excerpt.Printable(text), size) }
