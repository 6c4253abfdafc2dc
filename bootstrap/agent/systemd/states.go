package systemd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
)

// failingStates are the states of units that failed, that systemd is about to start again, or whose files it can't use.
// Older versions of systemd do not have all of them.
const failingStates = "failed,auto-restart,auto-restart-queued,bad-setting,error"

// maxWaiting is the maximum number of jobs that are asked for what they wait for.
const maxWaiting = 100

// Failing returns the names of the units that failed, that systemd is about to start again, or whose files it can't
// use.
func (m Manager) Failing(ctx context.Context) ([]string, error) {
	rows, err := m.list(ctx, "list-units", "--state="+failingStates)
	var units []string
	for _, row := range rows {
		units = append(units, row[0])
	}
	return units, err
}

// States returns the states of units, in their order, with one call of systemctl. It ignores templates.
func (m Manager) States(ctx context.Context, units ...string) ([]unitstate.State, error) {
	all, err := m.show(ctx, units, "Id", "LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus", "Restart", "RestartUSec", "NRestarts",
		"ExecMainStartTimestampMonotonic")
	if err != nil {
		return nil, err
	}
	now := monotonic()
	states := make([]unitstate.State, len(all))
	for i, properties := range all {
		s := unitstate.State{
			Unit: properties["Id"], Load: properties["LoadState"], Active: properties["ActiveState"], Sub: properties["SubState"],
			Result: properties["Result"], Restart: properties["Restart"], RestartDelay: properties["RestartUSec"], Restarts: properties.number("NRestarts"),
		}
		switch status := properties.number("ExecMainStatus"); properties.number("ExecMainCode") {
		case exited:
			s.ExitStatus = status
		case killed, dumped:
			s.Signal = status
		}
		if started := properties.number("ExecMainStartTimestampMonotonic"); started > 0 {
			s.Age = now - time.Duration(started)*time.Microsecond
		}
		states[i] = s
	}
	return states, nil
}

// State returns the state of a unit. If the unit is not active, it also finds what it waits for, and what it needs and
// has failed.
func (m Manager) State(ctx context.Context, unit string) (unitstate.State, error) {
	states, err := m.States(ctx, unit)
	if err != nil || len(states) == 0 || states[0].Active != "inactive" {
		return append(states, unitstate.State{})[0], err
	}
	s := states[0]
	if s.WaitsFor, err = m.waitsFor(ctx, unit); err != nil {
		return s, err
	}
	s.FailedDependencies, err = m.failedDependencies(ctx, unit)
	return s, err
}

// failedDependencies returns the units that a unit needs and that failed.
func (m Manager) failedDependencies(ctx context.Context, unit string) (failed []string, _ error) {
	all, err := m.show(ctx, []string{unit}, "Requires", "Requisite", "BindsTo")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	needed := strings.Fields(all[0]["Requires"] + " " + all[0]["Requisite"] + " " + all[0]["BindsTo"])
	states, err := m.States(ctx, needed...)
	for _, s := range states {
		if s.Active == "failed" {
			failed = append(failed, s.Unit)
		}
	}
	return failed, err
}

// waitsFor returns the units with running jobs for which the job of a unit waits: those after which it starts, and
// those after which these start.
func (m Manager) waitsFor(ctx context.Context, unit string) ([]string, error) {
	jobs, err := m.list(ctx, "list-jobs")
	if err != nil {
		return nil, err
	}
	isWaiting := map[string]bool{}
	for _, job := range jobs { // number, unit, type, state
		isWaiting[job[1]] = job[3] == "waiting"
	}
	if !isWaiting[unit] {
		return nil, nil
	}
	waiting := slices.DeleteFunc(slices.Sorted(maps.Keys(isWaiting)), func(name string) bool { return !isWaiting[name] || name == unit })
	waiting = append([]string{unit}, waiting[:min(len(waiting), maxWaiting)]...)
	all, err := m.show(ctx, waiting, "Id", "After")
	if err != nil {
		return nil, err
	}
	after := map[string][]string{}
	for _, properties := range all {
		after[properties["Id"]] = strings.Fields(properties["After"])
	}
	seen := map[string]bool{unit: true}
	var found []string
	for next := []string{unit}; len(next) > 0; next = next[1:] {
		for _, before := range after[next[0]] {
			waits, hasJob := isWaiting[before]
			if !hasJob || seen[before] {
				continue
			}
			seen[before] = true
			if waits {
				next = append(next, before)
			} else {
				found = append(found, before)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// Values of the property ExecMainCode.
const (
	exited = 1
	killed = 2
	dumped = 3
)

// properties are those of a unit.
type properties map[string]string

// number returns a property that is a number, 0 if the unit does not have it.
func (p properties) number(name string) int {
	number, _ := strconv.Atoi(p[name])
	return number
}

// list returns the rows of a list of systemctl. Each has four columns or more.
func (m Manager) list(ctx context.Context, verb string, arguments ...string) (rows [][]string, _ error) {
	output, err := m.Runner.Run(ctx, systemctl, append([]string{verb, "--plain", "--no-legend", "--no-pager", "--full"}, arguments...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(output)) {
		if row := strings.Fields(line); len(row) >= 4 {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// withoutTemplates leaves out templates: systemd loads only their instances.
func withoutTemplates(units []string) []string {
	return slices.DeleteFunc(slices.Clone(units), func(unit string) bool { return strings.Contains(unit, "@.") })
}

// show returns properties of units, in the order of the units, without templates. Their values have no line breaks.
func (m Manager) show(ctx context.Context, units []string, names ...string) (all []properties, _ error) {
	units = withoutTemplates(units)
	if len(units) == 0 {
		return nil, nil // without a unit, systemctl shows the properties of systemd itself
	}
	output, err := m.Runner.Run(ctx, systemctl, append([]string{"show", "--property=" + strings.Join(names, ","), "--"}, units...)...)
	if err != nil {
		return nil, err
	}
	for block := range strings.SplitSeq(strings.TrimSpace(string(output)), "\n\n") {
		one := properties{}
		for line := range strings.Lines(block) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			one[name] = value
		}
		all = append(all, one)
	}
	if len(all) != len(units) {
		return nil, fmt.Errorf("systemctl show: it shows %d units instead of %d: check with systemctl status that systemd answers", len(all), len(units))
	}
	return all, nil
}

// monotonic returns the time of systemd's monotonic timestamps.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
