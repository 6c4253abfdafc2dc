package update

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// report is what the agent of a host claims with the annotations of its Node.
type report struct {
	// version is the version of the agent, or "" if the host runs none.
	version string
	// current is the revision that the host has. target is the revision that state and reason are about. Both are "" if
	// the agent has not reported them.
	current, target string
	state           agentv1.State
	// reason and drift are for people. They have no control characters and at most agentv1.MaxReason bytes.
	reason, drift string
}

// revisionPattern matches a revision.
var revisionPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// maxVersion is the maximum size of the version of an agent in bytes.
const maxVersion = 64

// reportOf reads a report. It ignores what is malformed.
func reportOf(node *corev1.Node) report {
	if node == nil {
		return report{}
	}
	revision := func(key string) string {
		if value := node.Annotations[key]; revisionPattern.MatchString(value) {
			return value
		}
		return ""
	}
	return report{
		version: clean(node.Annotations[agentv1.AgentAnnotation], maxVersion),
		current: revision(agentv1.CurrentAnnotation),
		target:  revision(agentv1.TargetAnnotation),
		state:   agentv1.State(node.Annotations[agentv1.StateAnnotation]),
		reason:  clean(node.Annotations[agentv1.ReasonAnnotation], agentv1.MaxReason),
		drift:   clean(node.Annotations[agentv1.DriftAnnotation], agentv1.MaxReason),
	}
}

// isDone reports whether the host has a revision. A host that differs from it because of a change by hand has it too.
func (r report) isDone(revision string) bool {
	return revision != "" && r.current == revision && r.target == revision && (r.state == agentv1.Done || r.state == agentv1.Degraded)
}

// progress returns how far the host is with a revision that it was told to have.
func (r report) progress(revision string) rollout.Progress {
	switch {
	case revision == "" || r.isDone(revision):
		return rollout.Done
	case r.target != revision, r.current == revision: // with the second, the host works on what it has already
		return rollout.Unknown
	}
	switch r.state {
	case agentv1.Degraded, agentv1.Unreconcilable:
		return rollout.Failed
	case agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying:
		return rollout.InUpdate
	}
	return rollout.Unknown
}

// clean returns text from a host or a workload cluster for messages: valid UTF-8 with at most size bytes, in one line
// and without control characters.
func clean(text string, size int) string {
	if len(text) > 2*size { // bounds the work
		text = text[:2*size]
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	const more = "…"
	if len(text) <= size {
		return text
	}
	text = text[:size-len(more)]
	for !utf8.ValidString(text) { // the cut is within a rune
		text = text[:len(text)-1]
	}
	return text + more
}
