package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
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

// DescribeFailingUnits says which units that the host needs do not do their work, and what to do, "" if there are none.
func (r Report) DescribeFailingUnits() string {
	if len(r.FailingUnits) == 0 {
		return ""
	}
	texts := make([]string, len(r.FailingUnits))
	for i, unit := range r.FailingUnits {
		texts[i] = unit.String()
	}
	return "units that the host needs do not do their work: " + strings.Join(texts, "; ")
}
