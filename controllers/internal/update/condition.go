package update

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/cluster-api/util"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// outcome is what the condition of a host depends on besides the host.
type outcome struct {
	in poolContext
	// revision is that of what the host should run, or "" with the error why it is not known.
	revision string
	err      error
	// now is the time of the reconcile.
	now time.Time
	// bootedWithAgent is true if an assignment is stored for the host, which only hosts with an agent have.
	bootedWithAgent bool
	// remaining is what remains to be drained.
	remaining string
	// deletions are the Machines of the control plane that can't be deleted before the update of the host has ended.
	deletions []string
}

// updated returns the condition Updated of a host, or nil if it should stay as it is. Units of the host that do not do
// their work are part of it whatever else is so: a kubelet that ends again and again keeps its Node Ready.
func (h *host) updated(o outcome) *metav1.Condition {
	c := h.updatedByAgent(o)
	if c != nil && len(o.deletions) > 0 {
		c.Message += h.holding(o.deletions)
	}
	failing := h.Report.DescribeFailingUnits()
	isSaid := h.isUndoing() || c != nil && c.Reason == bootstrapv1.UpdateVerifyingReason && len(h.Report.FailingUnits) == 1 && strings.Contains(c.Message, h.Report.FailingUnits[0].Name+": ")
	if c != nil && failing != "" && !isSaid {
		if c.Reason == bootstrapv1.UpdateDoneReason || c.Reason == bootstrapv1.UpdateWaitingReason {
			c.Status, c.Reason = metav1.ConditionFalse, bootstrapv1.UnitsFailingReason
		}
		whose, remedy := "its", ". Correct the configuration or the host"
		if stage := h.Stage(); stage != "" && stage != bootstrapv1.UpdateVerifying { // the update can be what corrects it
			whose, remedy = "its earlier", ""
		} else if h.runsDesired() {
			remedy = ". What fails after an update does not undo it: the host keeps this configuration" + remedy
		}
		c.Message += ". Units of " + whose + " configuration do not do their work: " + h.withOrigins(failing) + remedy
	}
	return c
}

// updatedByAgent returns the condition Updated of a host by the state that its agent reports, or nil if it should stay
// as it is.
func (h *host) updatedByAgent(o outcome) *metav1.Condition {
	held := h.hold(o.in)
	runs, hold := h.Config.Status.Update.Desired.Name, cmp.Or(h.WhyMachineFirst(), h.WhyCordoned(), h.Report.Silence, held.Why)
	unknown := func(reason, format string, args ...any) *metav1.Condition {
		return newUpdated(metav1.ConditionUnknown, reason, format, args...)
	}
	isNot := func(reason, format string, args ...any) *metav1.Condition {
		return newUpdated(metav1.ConditionFalse, reason, format, args...)
	}
	says := func(configuration string) string {
		return rollout.LeadRuns.Of(h.Config.Status.NodeRef.Name, configuration, "")
	}
	served := cmp.Or(h.Config.Status.Boot.ServedConfiguration.Name, runs)
	isLate, _ := h.answer(o.now)
	isStagingLate, _ := h.staging(o)
	switch {
	case h.Node == nil:
		return unknown(bootstrapv1.NodeMissingReason, "Node %s does not exist: see the condition %s", h.Config.Status.NodeRef.Name, bootstrapv1.NodeInPoolCondition)
	case h.Report.NotUnderstood != "":
		return unknown(bootstrapv1.ReportNotUnderstoodReason, "Node %s is not updated: %s", h.Node.Name, h.Report.NotUnderstood)
	case !h.HasAgent() && o.bootedWithAgent:
		return h.notStarted(o)
	case !h.HasAgent() && record.IsAdopted(h.Config):
		return unknown(bootstrapv1.NoAgentReason, "the host of Node %s runs no agent yet: kubectl poolboot install-agent %s -n %s prints the script that installs it on the host%s",
			h.Node.Name, h.Config.Name, h.Config.Namespace, h.newMachinesHint())
	case !h.HasAgent() && h.awaitsAgent():
		return unknown(bootstrapv1.NoAgentReason, "the host of Node %s has not downloaded its agent from the config server yet, and keeps the configuration with which it booted. "+
			"If it can't connect to the config server, whose URL or CA can have changed since, %s to update it; otherwise, check %s on the host", h.Node.Name, h.renew(o), ignition.InstallAgentUnit)
	case !h.HasAgent():
		return unknown(bootstrapv1.NoAgentReason, "the host of Node %s runs no agent, and keeps the configuration with which it booted: to update it, %s",
			h.Node.Name, h.renew(o))
	case isLate && h.Report.Silence != "":
		return isNot(bootstrapv1.AgentNotAnsweringReason, "Node %s is Ready, and %s. On the host, see systemctl status poolboot-agent.service",
			h.Node.Name, h.Report.Silence)
	case h.IsLeaving() && h.Progress() == rollout.Done && h.Report.State != agentv1.Degraded && h.Report.Drift == "" && h.Desired() != "":
		return isNot(bootstrapv1.UpdateWaitingReason, "%s, and follows no pool until its labels name exactly one: see the condition %s",
			says(served), bootstrapv1.NodeInPoolCondition)
	case strings.Contains(h.Report.Reason, agentv1.CertificateNotAccepted) && (h.Progress() == rollout.Unknown || h.Progress() == rollout.Done):
		return h.notAccepted(o)
	case h.Told() != h.Desired() && hold != "":
		return isNot(bootstrapv1.UpdateWaitingReason, "%s, and %s", says(served), hold)
	case h.Told() != h.Desired() || h.Desired() == "":
		if o.err != nil && h.Progress() == rollout.Done {
			return h.failed(o.err)
		}
		return isNot(bootstrapv1.UpdateWaitingReason, "Node %s is to be told what to run, and %s%s", h.Node.Name, rollout.WaitsForTurn, rollout.SeePlan(o.in.pool))
	}
	if h.IsOnlyClaimed() {
		return isNot(bootstrapv1.UpdateDegradedReason, "the agent of Node %s reports %s for an update to %s that has ended or was not begun, so the Node is not drained. "+
			"Check whether the host was reset to an earlier state, and to apply everything again, run %s", h.Node.Name, h.Report.State, runs, h.retry(o))
	}
	switch h.Progress() {
	case rollout.InUpdate:
		return h.inUpdate(o)
	case rollout.Failed:
		return h.stopped(o, hold)
	case rollout.Unknown:
		if !isLate && h.isCompleting() {
			return h.inUpdate(o)
		}
		return h.unanswered(o)
	}
	switch {
	case h.Report.Drift != "":
		return isNot(bootstrapv1.UpdateDegradedReason, "%s, and the host differs from it: %s%s%s", says(runs), h.withOrigins(h.Report.Drift), sentence(h.Report.Reason), h.undoing(o))
	case h.Report.State == agentv1.Degraded:
		return isNot(bootstrapv1.UpdateDegradedReason, "%s, and its agent reports: %s. Correct this, or run %s to apply everything again", says(runs), strings.TrimSuffix(h.why(), "."), h.retry(o))
	case o.err != nil:
		return h.failed(o.err)
	case o.revision != h.Desired() && held.IsSkipped: // it does not stage either
		return isNot(bootstrapv1.UpdateWaitingReason, "%s, and %s", says(runs), hold)
	case o.revision != h.Desired() && h.WhyNotStaged(o.revision) != "":
		return isNot(bootstrapv1.UpdateFailingReason, "%s, and its host cannot stage the update to %s: %s. It tries again at the latest after 30 minutes, and takes no place of spec.maxUnavailable before. "+
			"If it lasts, correct the configuration, the host, or what the host downloads from", says(runs), rollout.NextOf(o.in.pool, h.Config, runs), h.withOrigins(strings.TrimPrefix(h.WhyNotStaged(o.revision), "stage "+o.in.pool.Status.Configuration.Name+": ")))
	case isStagingLate:
		return isNot(bootstrapv1.UpdateFailingReason, "%s, and its agent has not said for %s whether the update to %s is on the host. Until it says so, the host takes no place of "+
			"spec.maxUnavailable. Check poolboot-agent.service and its journal on the host", says(runs), duration.HumanDuration(rollout.StagingPatience), rollout.NextOf(o.in.pool, h.Config, runs))
	case o.revision != h.Desired() && hold != "":
		return isNot(bootstrapv1.UpdateWaitingReason, "%s, and %s", says(runs), hold)
	case o.revision != h.Desired():
		return isNot(bootstrapv1.UpdateWaitingReason, "%s, and %s before its update to %s%s", says(runs), rollout.WaitsForTurn, rollout.NextOf(o.in.pool, h.Config, runs), rollout.SeePlan(o.in.pool))
	}
	if record.IsPreview(h.Config) {
		return isNot(bootstrapv1.AdoptionPreviewReason, "Node %s is as it was found. %s", h.Node.Name, h.preview())
	}
	return newUpdated(metav1.ConditionTrue, bootstrapv1.UpdateDoneReason, "%s%s%s%s", says(runs), h.disks(o), h.missing(), sentence(rollout.DescribeRebootRequired(h.Config, o.in.pool, o.now)))
}

// preview says what the pool of an adopted host that is as it was found would change on it.
func (h *host) preview() string {
	agree := fmt.Sprintf("set spec.host.adoption of PoolbootConfig %s to %s", h.Config.Name, bootstrapv1.AdoptionFollow)
	switch next := h.Node.Annotations[agentv1.NextAnnotation]; {
	case h.notPreviewed != "":
		return "It can't be compared with its pool: " + h.notPreviewed
	case next == "" || h.Report.Previewed != next && h.WhyNotStaged(next) == "":
		return "Its agent compares it with its pool"
	case h.Report.Previewed != next:
		return "Its agent can't compare it with its pool, which it retries: " + h.withOrigins(h.WhyNotStaged(next))
	case h.Report.PreviewEffect == string(agentv1.Unreconcilable):
		return rollout.PreviewImpossible + ": " + h.withOrigins(h.Report.Preview)
	case h.Report.Preview == "":
		return rollout.PreviewNothing + ". To follow it, " + agree
	}
	return fmt.Sprintf("%s %s: %s. To agree, %s", rollout.PreviewChanges, h.Report.PreviewEffect, h.withOrigins(h.Report.Preview), agree)
}

// holding says which deletions wait for the update of the host, and what to do if the host does not return. Only a
// person can: the host is not remediated while another Machine of its control plane is being deleted.
func (h *host) holding(deletions []string) string {
	remedy := "bring the host back"
	if h.Machine != nil {
		remedy += fmt.Sprintf(", or delete its Machine %s first", h.Machine.Name)
	}
	return fmt.Sprintf(". The deletion of Machine %s waits until this host is updated, so that the control plane keeps its quorum. If that does not end, %s",
		strings.Join(deletions, ", "), remedy)
}

// isCompleting reports whether the host has what it was told, and its agent has not reported yet that it is done.
func (h *host) isCompleting() bool {
	stage := h.Stage()
	return h.Report.Current == h.Told() && stage != "" && stage != bootstrapv1.UpdateStarting
}

// isUndoing reports whether the host returns to the configuration that it had before its update.
func (h *host) isUndoing() bool {
	return h.Progress() == rollout.InUpdate && h.Report.IsUndoing
}

// inUpdate returns the condition of a host that is being updated.
func (h *host) inUpdate(o outcome) *metav1.Condition {
	lead := map[agentv1.State]rollout.Lead{
		agentv1.Draining: rollout.LeadDraining, agentv1.Applying: rollout.LeadApplying, agentv1.Rebooting: rollout.LeadRebooting, agentv1.Verifying: rollout.LeadVerifying,
	}[h.Report.State]
	if h.Report.State == agentv1.Draining && h.Report.NeedsNoDrain {
		lead = rollout.LeadAsking
	}
	runs := h.Config.Status.Update.Desired.Name
	if h.isUndoing() {
		runs = h.Config.Status.Boot.ServedConfiguration.Name
	}
	message := lead.Of(h.Node.Name, "", runs)
	if h.Report.Reason != "" {
		message += ": " + h.Report.Reason
	}
	if remaining := cmp.Or(h.WhyMachineFirst(), o.remaining); h.Report.State == agentv1.Draining && remaining != "" {
		message += ". " + remaining
	}
	if reason, firmware := h.describeFirmware(); reason != "" {
		return newUpdated(metav1.ConditionFalse, reason, "%s. %s", message, firmware)
	}
	for _, c := range h.Node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && h.Report.State != agentv1.Draining {
			message += ". The Node has not been Ready since " + c.LastTransitionTime.UTC().Format(time.RFC3339)
		}
	}
	if isLate, _ := h.overdue(o.in.pool, o.now); isLate {
		return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateOverdueReason, "%s. The stage began at %s, which is longer ago than spec.updates.readyDeadlineSeconds of its pool allows: "+
			"check the console of the host, or replace it", message, h.Config.Status.Update.StageTime.UTC().Format(time.RFC3339))
	}
	return newUpdated(metav1.ConditionFalse, string(h.Report.State), "%s", message)
}

// stopped returns the condition of a host whose update failed, or is not possible. hold is why it begins no other one
// now, or "".
func (h *host) stopped(o outcome, hold string) *metav1.Condition {
	desired, runs := h.Config.Status.Update.Desired.Name, h.Config.Status.Boot.ServedConfiguration.Name
	if hold != "" {
		hold = ". It begins no other update now, because " + hold
	}
	if h.Report.State == agentv1.Unreconcilable {
		return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateUnreconcilableReason, "%s: %s. Correct the configuration, or %s%s",
			rollout.LeadUnreconcilable.Of(h.Node.Name, runs, desired), strings.TrimPrefix(h.why(), "the host can't change to "+desired+": "), h.renew(o), hold)
	}
	lead, how := rollout.LeadUndone, "and was undone"
	why, isUnchanged := strings.CutPrefix(h.why(), "update to "+desired+": nothing was changed: ")
	if isUnchanged {
		lead, how = rollout.LeadUnchanged, "before it changed anything"
	}
	what := lead.Of(h.Node.Name, runs, desired)
	if desired == runs {
		what = fmt.Sprintf("%s, and applying it again failed %s", rollout.LeadRuns.Of(h.Node.Name, runs, ""), how)
	}
	if h.Report.Drift != "" {
		why += fmt.Sprintf(". The host differs from %s: %s", runs, h.withOrigins(h.Report.Drift))
	}
	return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateDegradedReason, "%s: %s. Correct the configuration, or run %s to try it again%s", what, why, h.retry(o), hold)
}

// sentence returns a text to add to another one, "" if there is none.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return ". " + strings.TrimSuffix(text, ".")
}

// retry returns the command that forces the host.
func (h *host) retry(o outcome) string {
	return rollout.Command("retry", o.in.pool) + " --host " + h.Node.Name
}

// byHand says what to do about kinds of drift that no update corrects.
var byHand = []struct {
	kind update.DriftKind
	does string
}{
	{update.DriftMasked, "run systemctl unmask for what is Masked"},
	{update.DriftAdditionalDropIn, "remove the files that are AdditionalDropIn"},
	{update.DriftOverridden, "remove the files that are Overridden"},
	{update.DriftUnreadable, "let root read what is Unreadable"},
}

// undoing says what to do about the drift of the host. What the list can't name, because it is too long, counts as
// something that an update corrects.
func (h *host) undoing(o outcome) (text string) {
	var does []string
	drift, change := update.ParseDrift(h.Report.Drift), "change"
	for _, b := range byHand {
		isOfKind := func(d update.Drift) bool { return d.Kind == b.kind }
		if slices.ContainsFunc(drift, isOfKind) {
			does = append(does, b.does)
		}
		drift = slices.DeleteFunc(drift, isOfKind)
	}
	if len(does) > 0 {
		text, change = ". On the host, "+strings.Join(does, ", ")+": no update does that", "other changes"
		if len(drift) == 0 {
			return text
		}
	}
	if hold := h.hold(o.in).Why; hold != "" && rollout.IsForced(h.Config) {
		return text + ". It is to apply its configuration again, and " + hold
	}
	return fmt.Sprintf("%s. Undo the %s on the host%s, run %s to apply everything again, or leave out of the configuration what the operating system changes itself",
		text, change, o.repairing(), h.retry(o))
}

// repairing advises the drift policy Repair, if the pool has another one.
func (o outcome) repairing() string {
	if o.in.pool.Spec.Updates.RepairsDrift() {
		return ""
	}
	return ", set spec.updates.driftPolicy of the pool to Repair if the correction needs neither a drain nor a reboot"
}

// unanswered returns the condition of a host whose agent has not answered.
func (h *host) unanswered(o outcome) *metav1.Condition {
	desired, reports := h.Config.Status.Update.Desired.Name, ""
	if h.Report.Reason != "" {
		reports = ". The agent reports: " + h.Report.Reason
	}
	if isLate, _ := h.answer(o.now); isLate {
		return newUpdated(metav1.ConditionFalse, bootstrapv1.AgentNotAnsweringReason, "Node %s was told to run %s, and its agent has not answered for %s%s. "+
			"Check that the host runs, and poolboot-agent.service and its journal on it", h.Node.Name, desired, duration.HumanDuration(answerDeadline), reports)
	}
	if h.isRepairing() {
		return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "%s, and its agent corrects what differs from it", rollout.LeadRuns.Of(h.Node.Name, desired, ""))
	}
	if h.Report.State == agentv1.Done && h.Report.Reason != "" { // what failed with an earlier config has another state
		return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateFailingReason, "Node %s was told to run %s, and its agent cannot begin, which it retries: %s. "+
			"If it lasts, correct the configuration, the host, or what the host downloads from", h.Node.Name, desired, h.why())
	}
	told, notReady := "just now", ""
	does := fmt.Sprintf("its agent has %s to answer", duration.HumanDuration(answerDeadline))
	if h.isDownloading() {
		does = agentv1.StagingDownloads
	}
	if since := h.Config.Status.Update.UnansweredTime; since != nil {
		told = "at " + since.UTC().Format(time.RFC3339)
	}
	if !util.IsNodeReady(h.Node) {
		notReady = ". The Node is not Ready: see the condition " + bootstrapv1.NodeInPoolCondition
	}
	return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node %s was told %s to run %s, and %s%s", h.Node.Name, told, desired, does, notReady)
}

// isRepairing reports whether the agent works on what the host has already, without an update.
func (h *host) isRepairing() bool {
	return h.Report.Current == h.Told() && h.Report.Target == h.Told() && !h.HasBegun() && h.Report.State != agentv1.Done
}

// notStarted returns the condition of a host that booted with an agent which has not reported anything yet.
func (h *host) notStarted(o outcome) *metav1.Condition {
	if isLate, _ := h.start(o.now); isLate {
		return newUpdated(metav1.ConditionFalse, bootstrapv1.AgentNotAnsweringReason, "Node %s is Ready, and its agent has not reported for %s. "+
			"Check poolboot-agent.service and its journal on the host", h.Node.Name, duration.HumanDuration(answerDeadline))
	}
	return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node %s is Ready, and its agent has not reported yet: if it does not, "+
		"check poolboot-agent.service on the host", h.Node.Name)
}

// newMachinesHint returns how the Machines that follow bring their agent, if an adopted host has a Machine.
func (h *host) newMachinesHint() string {
	if record.MachineName(h.Config) == "" {
		return ""
	}
	return ", and with --format kubeadm what brings it to new Machines"
}

// notAccepted returns the condition of a host whose certificate the config server does not accept.
func (h *host) notAccepted(o outcome) *metav1.Condition {
	return newUpdated(metav1.ConditionFalse, bootstrapv1.CertificateNotAcceptedReason, "the agent of Node %s reports: %s. If another CA issued the certificate, add that one "+
		"to certificate-authority-data in the Secret %s/%s-kubeconfig, which must have all CAs of certificates that kubelets still use. Otherwise, check the clock and kubelet.service of the host", h.Node.Name, h.Report.Reason, h.Config.Namespace, o.in.pool.Spec.ClusterName)
}

// failed returns the condition of a host whose target is not known.
func (h *host) failed(err error) *metav1.Condition {
	if errors.Is(err, errNothingToRun) {
		return newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node %s: %s", h.Node.Name, err)
	}
	return newUpdated(metav1.ConditionFalse, bootstrapv1.AssignmentFailedReason, "what Node %s should run cannot be determined: %s", h.Node.Name, rollout.Clean(err.Error(), agentv1.MaxReason))
}

// why returns the reason that the agent reports, and where the entries come from that it names.
func (h *host) why() string {
	if h.Report.Reason == "" {
		return "the agent reports no reason; see the journal of poolboot-agent.service on the host"
	}
	return h.withOrigins(h.Report.Reason)
}

// withOrigins returns a text of the agent, and where the entries come from that it names.
func (h *host) withOrigins(text string) string {
	if h.origins == nil {
		return text
	}
	if origins := h.origins(text); origins != "" {
		return text + " (" + rollout.Clean(origins, agentv1.MaxReason) + ")"
	}
	return text
}

// renew returns how to boot the host with the configuration of its pool.
func (h *host) renew(o outcome) string {
	return pool.Boot{Config: h.Config, Machine: h.Machine, Pools: o.in.pools}.HowToRenew()
}

// disks describes what the host does not have of its configuration, because it keeps its disks.
func (h *host) disks(o outcome) string {
	if len(h.Report.OutdatedDisks) == 0 {
		return ""
	}
	return fmt.Sprintf(", and keeps %s. To change these, %s", h.withOrigins(update.DescribeOutdated(h.Report.OutdatedDisks)), h.renew(o))
}

// missing describes the drop-ins of the configuration that have no effect on the host.
func (h *host) missing() string {
	if len(h.Report.MissingUnits) == 0 {
		return ""
	}
	return ". Drop-ins have no effect: " + h.withOrigins(h.Report.DescribeMissingUnits())
}

func newUpdated(status metav1.ConditionStatus, reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
