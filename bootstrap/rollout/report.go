package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Report is what the agent of a host claims with the annotations of its Node.
type Report struct {
	// NotUnderstood is why the report is not understood and what to do, or "". It has only Version then.
	NotUnderstood string
	// Version is the version of the agent, or "" if the host runs none.
	Version string
	// Current is the revision that the host has. Target is the revision that State and Reason are about. Both are "" if
	// the agent has not reported them.
	Current, Target string
	State           agentv1.State
	// IsUndoing is true while the host returns to the configuration that it had before its update to Target.
	IsUndoing bool
	// Effect is what the agent says that the update to Target does to the host, or "" if it does not say it.
	Effect update.Effect
	// NeedsNoDrain is true if the agent waits for its drain although the update to Target needs none.
	NeedsNoDrain bool
	// Staging is the last revision for which the host has everything, or can't have it because of StagingProblem. It is
	// "" if the agent says nothing about that.
	Staging, StagingProblem string
	// Preview is what the first update of an adopted host to the revision Previewed changes, for people, and
	// PreviewEffect the strongest thing that it does to the host, or that it is not possible.
	Previewed, PreviewEffect, Preview string
	// Reason and Drift are for people. They have no control characters and at most agentv1.MaxReason bytes.
	Reason, Drift string
	// OutdatedDisks are what of the configuration the host does not have because it keeps its disks.
	OutdatedDisks []string
	// RebootRequired says that the operating system needs a reboot. It is empty if it needs none.
	RebootRequired bootstrapv1.RebootRequired
	// Unsupported are the kinds of changes for which the host has no program.
	Unsupported []string
	// Silence is why the agent does not run while the kubelet does, or "". An agent that does not say whether it runs,
	// as earlier ones, counts as one that runs.
	Silence string
	// FailingUnits are the units that the host needs and that do not do their work. MissingUnits do not exist, and the
	// configuration has only drop-ins for them: nothing fails.
	FailingUnits, MissingUnits []FailingUnit
}

// revisionPattern matches a revision.
var revisionPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsRevision reports whether a text has the form of a revision.
func IsRevision(text string) bool { return revisionPattern.MatchString(text) }

// MaxVersion is the maximum size of the version of an agent in bytes.
const MaxVersion = 64

// ReportOf reads a report. It ignores what is malformed, and all but the version of the agent if it does not know the
// version of the report.
func ReportOf(node *corev1.Node) Report {
	if node == nil {
		return Report{}
	}
	revision := func(key string) string {
		if value := node.Annotations[key]; IsRevision(value) {
			return value
		}
		return ""
	}
	version := Clean(node.Annotations[agentv1.AgentAnnotation], MaxVersion)
	if why := whyNotUnderstood(node); why != "" {
		return Report{Version: version, NotUnderstood: why}
	}
	r := Report{
		Version: version,
		Current: revision(agentv1.CurrentAnnotation),
		Target:  revision(agentv1.TargetAnnotation),
		State:   agentv1.State(node.Annotations[agentv1.StateAnnotation]),
		Reason:  Clean(node.Annotations[agentv1.ReasonAnnotation], agentv1.MaxReason),
		Drift:   Clean(strings.ReplaceAll(node.Annotations[agentv1.DriftAnnotation], "\n", "; "), agentv1.MaxReason),

		Unsupported: update.CapabilitiesWithout(strings.Fields(node.Annotations[agentv1.UnsupportedAnnotation])...).Unsupported(),
	}
	for _, unit := range failingUnitsOf(node.Annotations[agentv1.FailingUnitsAnnotation]) {
		if strings.HasPrefix(unit.What, agentv1.DropInsUnused) {
			r.MissingUnits = append(r.MissingUnits, unit)
		} else {
			r.FailingUnits = append(r.FailingUnits, unit)
		}
	}
	r.IsUndoing = r.Target != "" && revision(agentv1.UndoingAnnotation) == r.Target
	for line := range strings.Lines(node.Annotations[agentv1.OutdatedDisksAnnotation]) {
		if item := Clean(line, bootstrapv1.MaxOutdatedDisk); item != "" && len(r.OutdatedDisks) < bootstrapv1.MaxOutdatedDisks {
			r.OutdatedDisks = append(r.OutdatedDisks, item)
		}
	}
	r.RebootRequired = rebootRequiredOf(node)
	r.Silence = r.silenceOf(node)
	if about, problem, _ := strings.Cut(node.Annotations[agentv1.StagingAnnotation], " "); IsRevision(about) {
		r.Staging, r.StagingProblem = about, Clean(problem, agentv1.MaxReason)
	}
	head, preview, _ := strings.Cut(node.Annotations[agentv1.PreviewAnnotation], "\n")
	if about, effect, _ := strings.Cut(head, " "); IsRevision(about) && (effect == string(agentv1.Unreconcilable) || slices.Contains(effects, update.Effect(effect))) {
		r.Previewed, r.PreviewEffect, r.Preview = about, effect, Clean(strings.ReplaceAll(preview, "\n", "; "), agentv1.MaxReason)
	}
	about, effect, _ := strings.Cut(node.Annotations[agentv1.EffectAnnotation], " ")
	effect, isWithoutDrain := strings.CutSuffix(effect, " "+agentv1.WithoutDrain)
	if r.Target != "" && about == r.Target && slices.Contains(effects, update.Effect(effect)) {
		r.Effect, r.NeedsNoDrain = update.Effect(effect), isWithoutDrain
	}
	return r
}

// silenceOf returns why the agent of a Node does not run, or "". Of a Node that is not Ready, it is not known. A Node
// stays Ready for some time after its host has booted without a kubelet that reports: then the boot of the agent is the
// later one.
func (r Report) silenceOf(node *corev1.Node) string {
	switch boot, is := node.Annotations[agentv1.BootAnnotation], node.Status.NodeInfo.BootID; {
	case boot == "" || is == "" || boot == is || !util.IsNodeReady(node):
		return ""
	case boot == agentv1.AgentStopped:
		return "its agent does not run: it has stopped"
	case r.State == agentv1.Verifying, r.IsKubeletFailing():
		return ""
	}
	return "its agent does not run: it has not started since the host booted"
}

// whyNotUnderstood returns why the report of the agent of a Node is not understood, or "".
func whyNotUnderstood(node *corev1.Node) string {
	value, has := node.Annotations[agentv1.ReportVersionAnnotation]
	version, err := strconv.Atoi(value)
	isReport := func(key string) bool { return metav1.HasAnnotation(node.ObjectMeta, key) }
	switch {
	case has && err == nil && version == agentv1.ReportVersion, !slices.ContainsFunc(agentv1.Reports, isReport):
		return ""
	case has && err == nil && version > agentv1.ReportVersion:
		return fmt.Sprintf("its agent reports in version %d, and version %d is the latest that is understood: update Poolboot's manager and kubectl poolboot "+
			"before the agents", version, agentv1.ReportVersion)
	case has:
		return fmt.Sprintf("its annotation %s is %q, which no agent of this version writes: restart poolboot-agent.service on the host, or install the host again",
			agentv1.ReportVersionAnnotation, Clean(value, MaxVersion))
	}
	return fmt.Sprintf("its agent reports without the annotation %s: restart poolboot-agent.service on the host, or install the host again", agentv1.ReportVersionAnnotation)
}

// effects are the effects of updates that an agent carries out.
var effects = []update.Effect{update.EffectNone, update.EffectReload, update.EffectRestart, update.EffectReboot}

// IsDone reports whether the host has a revision. A host that differs from it because of a change by hand has it too.
func (r Report) IsDone(revision string) bool {
	return revision != "" && r.Current == revision && r.Target == revision && (r.State == agentv1.Done || r.State == agentv1.Degraded)
}

// Progress returns how far the host is with a revision that it was told to have.
func (r Report) Progress(revision string) Progress {
	switch {
	case revision == "" || r.IsDone(revision):
		return Done
	case r.Target != revision, r.Current == revision: // with the second, the host works on what it has already
		return Unknown
	}
	switch r.State {
	case agentv1.Degraded, agentv1.Unreconcilable:
		return Failed
	case agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying:
		return InUpdate
	}
	return Unknown
}

// Clean returns text from a host or a workload cluster for messages, in one line with at most size bytes.
func Clean(text string, size int) string { return excerpt.Line(text, size) }

// What the condition Updated of an adopted host that is as it was found says about its Preview, before the details.
const (
	PreviewNothing    = "Its pool changes nothing on it"
	PreviewImpossible = "It can't follow its pool"
	PreviewChanges    = "Its pool changes, with the effect"
)

// FailingUnit is a unit of systemd that the host needs and that does not do its work.
type FailingUnit struct {
	// Name is the name of the unit. It has no characters that mean something to a shell.
	Name string
	// What is what systemd says about it, for people, in one line.
	What string
}

// String says what is wrong with the unit, and which command shows more on the host: its log can have secrets, and is
// not reported.
func (u FailingUnit) String() string {
	if strings.Contains(u.What, agentv1.UnitMissing) {
		return u.Name + ": " + u.What
	}
	return fmt.Sprintf("%s: %s (on the host, see journalctl -u %s)", u.Name, u.What, u.Name)
}

// unitPattern matches the names of units, without those that need quotes in a shell.
var unitPattern = regexp.MustCompile(`^[A-Za-z0-9:_.@-]{1,246}\.[a-z]{4,9}$`)

// failingUnitsOf reads agentv1.FailingUnitsAnnotation. It ignores what is malformed.
func failingUnitsOf(annotation string) (units []FailingUnit) {
	if len(annotation) > agentv1.MaxReason {
		annotation = annotation[:agentv1.MaxReason]
	}
	for line := range strings.Lines(annotation) {
		name, what, found := strings.Cut(line, ": ")
		if what = Clean(what, agentv1.MaxReason); found && what != "" && unitPattern.MatchString(name) {
			units = append(units, FailingUnit{name, what})
		}
	}
	return units
}

// IsKubeletFailing reports whether the agent says that the kubelet does not run, or ends again and again.
func (r Report) IsKubeletFailing() bool {
	return slices.ContainsFunc(r.FailingUnits, func(unit FailingUnit) bool { return unit.Name == ignition.KubeletUnit })
}

// DescribeFailingUnits says what is wrong with the units of the host that do not do their work, "" if there are none.
func (r Report) DescribeFailingUnits() string { return describe(r.FailingUnits) }

// DescribeMissingUnits says for which units that do not exist the configuration has drop-ins, "" if there are none.
func (r Report) DescribeMissingUnits() string { return describe(r.MissingUnits) }

func describe(units []FailingUnit) string {
	texts := make([]string, len(units))
	for i, unit := range units {
		texts[i] = unit.String()
	}
	return strings.Join(texts, "; ")
}
