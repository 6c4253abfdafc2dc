// Package unitstate has what systemd knows of the units of a host, and says for people why a unit does not do its work.
// It has nothing that a program wrote, because lines of a log can have secrets: what a host reports is read by more
// people than its log.
package unitstate

import (
	"fmt"
	"strings"
	"time"
)

// State is the state of a unit.
type State struct {
	// Unit is the name of the unit.
	Unit string
	// Load, Active, Sub and Result are the values of systemd's properties LoadState, ActiveState, SubState and Result.
	Load, Active, Sub, Result string
	// ExitStatus and Signal are how the main process ended last, 0 if it did not end that way.
	ExitStatus, Signal int
	// Restart and RestartDelay are the values of systemd's properties Restart and RestartUSec.
	Restart, RestartDelay string
	// Restarts is how often systemd has started the unit again by itself since somebody started it.
	Restarts int
	// Age is the time since the main process was started last, 0 if it was not.
	Age time.Duration
	// WaitsFor are the units with running jobs for which the job of this unit waits.
	WaitsFor []string
	// FailedDependencies are the units without which this one does not start, and that failed.
	FailedDependencies []string
}

// Problem is why a unit does not do its work.
type Problem struct {
	Unit string
	// What says what is wrong. It is the same as long as the same is wrong: it has no times and no counts.
	What string
	// CanPass is true for what is also so for a moment when a unit starts or stops as it should.
	CanPass bool
	// Restarts is that of the state.
	Restarts int
}

// String describes the problem in one line.
func (p Problem) String() string {
	text := p.Unit + ": " + p.What
	if p.Restarts > 0 {
		text += fmt.Sprintf(" (restarts: %d)", p.Restarts)
	}
	return text
}

// settleTime is how long a unit that must run counts as one that does not stay up after systemd has started it again.
const settleTime = 30 * time.Second

// Restarted begins the text about a unit that does not stay up.
const Restarted = "it ended, and systemd starts it again"

// Problem returns what is wrong with the unit, nil if nothing is. A unit that must run has to be active all the time.
// Others can be inactive, and can end without an error as often as they like.
func (s State) Problem(mustRun bool) *Problem {
	problem := func(canPass bool, format string, args ...any) *Problem {
		return &Problem{Unit: s.Unit, What: fmt.Sprintf(format, args...), CanPass: canPass, Restarts: s.Restarts}
	}
	switch {
	case s.Load == "not-found", s.Load == "masked" && !mustRun:
		return nil
	case s.Load != "loaded" && s.Active != "active":
		return problem(false, "systemd can't start it: its unit file is %s", s.Load)
	case s.Active == "failed":
		return problem(false, "it failed%s", s.how())
	case s.IsRestarting() && (mustRun || s.Result != "success"), mustRun && s.Restarts > 0 && s.Age < settleTime:
		return problem(false, "%s%s", Restarted, s.how())
	case s.Restarts > 0 && s.Age < settleTime && s.mustStayUp(): // how it ended is not known any more
		return problem(true, "%s", Restarted)
	case !mustRun || s.Active == "active" || s.Active == "reloading":
		return nil
	case len(s.WaitsFor) > 0:
		return problem(true, "it has not started: it waits for %s", strings.Join(s.WaitsFor, " and "))
	case len(s.FailedDependencies) > 0:
		return problem(true, "it is not running: it needs %s, which failed", strings.Join(s.FailedDependencies, " and "))
	case s.Active == "inactive":
		return problem(true, "it is not running")
	}
	return problem(true, "it is not running yet: it is %s (%s)", s.Active, s.Sub)
}

// IsRestarting reports whether the unit ended, and waits until systemd starts it again.
func (s State) IsRestarting() bool { return strings.Contains(s.Sub, "auto-restart") }

// mustStayUp reports whether systemd starts the unit again only after a failure, or always and at once, which is its
// default. A unit that does some work, ends, and is started again after a while can end as often as it likes.
func (s State) mustStayUp() bool {
	return s.Restart != "always" && s.Restart != "on-success" || s.RestartDelay == "100ms"
}

// how returns how the unit ended, "" if it is not known any more.
func (s State) how() string {
	if s.Result == "" || s.Result == "success" {
		return ""
	}
	text := ": result " + s.Result
	switch {
	case s.Signal > 0:
		text += fmt.Sprintf(", signal %d", s.Signal)
	case s.ExitStatus > 0:
		text += fmt.Sprintf(", exit status %d", s.ExitStatus)
	}
	return text
}
