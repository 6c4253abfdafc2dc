package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

const (
	// unitTimeout is how long systemd may take to tell the states of units.
	unitTimeout = 20 * time.Second
	// unitGrace is how long the kubelet can be stopped, or wait, before that is reported: somebody can restart it.
	unitGrace = 30 * time.Second
	// unitHold is how long a unit that failed is reported after that was seen last. A unit that systemd starts again
	// and again runs for a while each time: without this, the report would come and go.
	unitHold = 2 * time.Minute
	// maxUnits is how many failed units, and how many changes of a failed update, a reason names.
	maxUnits = 5
)

// seenProblem is a problem of a unit, with the uptimes at which it was seen first and last.
type seenProblem struct {
	unitstate.Problem
	first, last time.Duration
}

// unitWatch is what the agent has seen of the units of the host.
type unitWatch struct {
	// isKnown is set once systemd has answered.
	isKnown bool
	// isSilent is set while systemd does not answer.
	isSilent bool
	seen     []seenProblem
	// report is the value of agentv1.FailingUnitsAnnotation.
	report string
}

// lookAtUnits asks systemd whether the kubelet and the units of the configuration do their work, and reports whether
// what the host reports about them changed. systemd tells programs only by D-Bus, and two calls of systemctl are
// simpler than a client for that.
func (a *Agent) lookAtUnits(ctx context.Context) (changed bool) {
	if a.journal.Phase == rebooting || a.journal.Phase == returning {
		return false // units are being stopped
	}
	problems, err := a.unitProblems(ctx)
	if ctx.Err() != nil {
		return false
	}
	if (err != nil) != a.units.isSilent {
		a.units.isSilent = err != nil
		a.Log.Info("whether systemd tells the states of units changed", "error", err)
	}
	if err != nil {
		return false
	}
	a.units.see(problems, a.Clock.Uptime())
	report := a.units.describe(a.Clock.Uptime())
	changed = !a.units.isKnown || report != a.units.report
	if report != a.units.report {
		a.Log.Warn("the units that do not do their work changed", "units", report)
	}
	a.units.isKnown, a.units.report = true, report
	return changed
}

// unitProblems returns what is wrong with the units that the host needs, the kubelet first: it must run. Other units of
// the configuration must not fail.
func (a *Agent) unitProblems(ctx context.Context) (problems []unitstate.Problem, _ error) {
	limited, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	units, err := a.Executors.Units.Failing(limited)
	if err != nil {
		return nil, err
	}
	if a.current != nil {
		units = slices.AppendSeq(units, maps.Keys(a.current.enablement)) // those that systemd starts again at once are not among the failing ones
	}
	slices.Sort(units)
	units = slices.DeleteFunc(slices.Compact(units), func(unit string) bool { return unit == ignition.KubeletUnit || !a.needs(unit) })
	states, err := a.Executors.Units.States(limited, append([]string{ignition.KubeletUnit}, units...)...)
	if err != nil {
		return nil, err
	}
	for i, state := range states {
		isKubelet := i == 0
		if isKubelet && state.Active == "inactive" { // State also says what it waits for
			if state, err = a.Executors.Units.State(limited, ignition.KubeletUnit); err != nil {
				return nil, err
			}
		}
		if problem := state.Problem(isKubelet); problem != nil {
			problems = append(problems, *problem)
		} else if !isKubelet && state.Load == "not-found" && a.current.extended[state.Unit] {
			problems = append(problems, unitstate.Problem{Unit: state.Unit, What: agentv1.DropInsUnused + ": correct its name, or remove them"})
		} else if !isKubelet && state.Load == "not-found" && a.current.enablement[state.Unit] == update.Enabled {
			problems = append(problems, unitstate.Problem{Unit: state.Unit, What: "the configuration enables it, and it " + agentv1.UnitMissing +
				": correct its name, set its contents in a MachineConfig, or use an image that has it"})
		}
	}
	return problems, nil
}

// needs reports whether a unit is one of the current configuration that can run. The agent itself runs: when it
// replaces its program, systemd starts it again.
func (a *Agent) needs(unit string) bool {
	if a.current == nil || unit == ignition.AgentUnit {
		return false
	}
	_, isUsed := a.current.enablement[unit]
	_, isInstance := a.current.enablement[hosttree.TemplateOf(unit)]
	return isUsed || isInstance
}

// kubeletProblem returns why the kubelet does not run, nil if it does.
func (a *Agent) kubeletProblem(ctx context.Context) (*unitstate.Problem, error) {
	limited, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	state, err := a.Executors.Units.State(limited, ignition.KubeletUnit)
	if err != nil {
		return nil, fmt.Errorf("the state of %s is not known: %w", ignition.KubeletUnit, err)
	}
	return state.Problem(true), nil
}

// see remembers what is wrong now.
func (w *unitWatch) see(problems []unitstate.Problem, uptime time.Duration) {
	for _, problem := range problems {
		i := slices.IndexFunc(w.seen, func(s seenProblem) bool { return s.Unit == problem.Unit })
		if i < 0 {
			w.seen = append(w.seen, seenProblem{Problem: problem, first: uptime, last: uptime})
			continue
		}
		switch s := &w.seen[i]; {
		case problem.CanPass && !s.CanPass && uptime-s.last < unitHold: // it starts again
		case strings.HasPrefix(s.What, problem.What): // how a unit ended is known only until it starts again
			s.last = uptime
		default:
			s.Problem, s.last = problem, uptime
		}
	}
	w.seen = slices.DeleteFunc(w.seen, func(s seenProblem) bool { return s.last != uptime && (s.CanPass || uptime-s.last >= unitHold) })
}

// describe returns what is reported.
func (w *unitWatch) describe(uptime time.Duration) string {
	var lines []string
	for _, s := range w.seen {
		if !s.CanPass || uptime-s.first >= unitGrace {
			lines = append(lines, s.Unit+": "+s.What)
		}
	}
	return shorten(strings.Join(lines, "\n"), agentv1.MaxReason)
}

// failingUnits says which units of the host failed, and which command shows their logs, for the reason of an update
// that failed: it follows the error, which can name one already. Lines of logs can have secrets, and stay on the host.
func (a *Agent) failingUnits(ctx context.Context, failed string) string {
	limited, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	failing, err := a.Executors.Units.Failing(limited)
	if err != nil {
		a.Log.Error("which units failed is not known", "error", err)
		return ""
	}
	failing = slices.DeleteFunc(failing, func(unit string) bool { return strings.HasPrefix(failed, unit+": ") })
	var lines []string
	more, command := len(failing)-maxUnits, "journalctl"
	if more > 0 {
		failing = failing[:maxUnits]
	}
	states, err := a.Executors.Units.States(limited, failing...)
	if err != nil {
		a.Log.Error("why units failed is not known", "error", err)
	}
	for _, state := range states {
		if problem := state.Problem(false); problem != nil {
			lines, command = append(lines, problem.String()), command+" -u "+problem.Unit
		}
	}
	if len(lines) == 0 {
		return ""
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: systemctl --failed", more))
	}
	return "; " + strings.Join(append(lines, "on the host, see "+command), "; ")
}
