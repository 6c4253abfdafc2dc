package systemd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Manager is the part of systemd that a boot needs: it starts what is enabled, in order, and keeps it as the units say.
type Manager struct {
	// Root is the folder that is the host's file system.
	Root string

	// Command makes a command of a unit that runs inside Root; it is killed when ctx ends.
	Command func(ctx context.Context, unit string, argv, env []string) *exec.Cmd

	// Run runs a command of a unit to its end; it calls started as soon as the program runs.
	Run func(cmd *exec.Cmd, started func()) error

	// Started is told of every main program that was started.
	Started func(unit string, argv []string)

	// Changed is told of every unit that became active or failed. Both are called from several
	// goroutines.
	Changed func(unit string, state State, err error)

	ctx   context.Context
	tasks sync.WaitGroup
	wants map[string][]string

	units map[string]*job
}

// State is what a unit came to.
type State string

const (
	// Active units run, or ran to their end well.
	Active State = "active"
	// Skipped units have a condition that did not hold.
	Skipped State = "skipped"
	// Restarting units failed or ended and are started again in a moment.
	Restarting State = "restarting"
	// Failed units are not started again.
	Failed State = "failed"
)

// job is one unit in this boot, however often it is started.
type job struct {
	unit *Unit

	// boots says that the boot starts it, not only a path unit.
	boots bool

	// running is held for as long as the unit is active or being started.
	running sync.Mutex

	// starts are the times of the last starts, for the start limit. Guarded by running.
	starts []time.Time

	// settled is closed once the unit's first start is over, well or not: what is ordered after it may go on.
	settled chan struct{}

	mu    sync.Mutex
	state State
}

func (j *job) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state == Failed
}

// Boot starts every unit that a target wants and what those need. It returns an error, before anything runs, for a unit
// that is not understood; else it returns when ctx has ended and all commands are gone. Units that fail are
// told to Changed, as a real host stays up with them.
func (m *Manager) Boot(ctx context.Context) error {
	pulled, err := wants(m.Root)
	if err != nil {
		return err
	}
	m.ctx, m.wants, m.units = ctx, pulled, map[string]*job{}
	var first []string
	for by, names := range pulled {
		if kind(by) == "target" {
			first = append(first, names...)
		}
	}
	if err := m.load(first); err != nil {
		return err
	}
	jobs := make([]*job, 0, len(m.units))
	for _, name := range m.closure(first) {
		if j := m.units[name]; j != nil {
			j.boots = true
			jobs = append(jobs, j)
		}
	}
	for _, j := range jobs {
		m.tasks.Go(func() { m.startInOrder(j, jobs) })
	}
	<-ctx.Done()
	m.tasks.Wait()
	return nil
}

// load reads the named units, what they pull in, and the units that their path units start.
func (m *Manager) load(names []string) error {
	var errs []error
	for _, name := range names {
		if _, loaded := m.units[name]; loaded || !runs(name) {
			continue
		}
		u, err := Load(m.Root, name)
		var missing *NotFoundError
		if errors.As(err, &missing) {
			m.units[name] = nil
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.units[name] = &job{unit: u, settled: make(chan struct{})}
		if !u.Masked && kind(name) == "service" {
			errs = append(errs, m.show(u))
		}
		needs := m.needs(u)
		if kind(name) == "path" {
			needs = append(needs, u.triggers())
		}
		errs = append(errs, u.validate(), m.load(needs))
	}
	return errors.Join(errs...)
}

// runs says whether a unit of that name has something to run. Targets, mounts and devices of the image are there
// already when a simulated host boots.
func runs(name string) bool {
	switch kind(name) {
	case "target", "mount", "device", "slice", "socket":
		return false
	}
	return true
}

// validate finds at boot what would otherwise come up when the unit is started.
func (u *Unit) validate() error {
	if u.Masked {
		return nil
	}
	switch kind(u.Name) {
	case "service":
		_, err := u.service()
		return err
	case "path":
		_, err := u.watched()
		return err
	default:
		return fmt.Errorf("unit %s: units of this type are not understood", u.Name)
	}
}

// needs are the units that are started along with this one.
func (m *Manager) needs(u *Unit) []string {
	return slices.Concat(u.words("Unit", "Requires"), u.words("Unit", "Wants"), m.wants[u.Name])
}

// closure is names and what they need, each once.
func (m *Manager) closure(names []string) []string {
	var all []string
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if j := m.units[name]; j != nil && !slices.Contains(all, name) {
			all = append(all, name)
			names = append(names, m.needs(j.unit)...)
		}
	}
	return all
}

// startInOrder waits for the units among others that come first, then starts j.
func (m *Manager) startInOrder(j *job, others []*job) {
	for _, other := range others {
		if other == j || !comesFirst(other.unit, j.unit) {
			continue
		}
		select {
		case <-other.settled:
		case <-m.ctx.Done():
			return
		}
		if m.failedRequirement(j) {
			return
		}
	}
	if kind(j.unit.Name) == "path" {
		m.watch(j)
		return
	}
	m.start(j)
}

// failedRequirement reports a unit as failed whose Requires= names one that is.
func (m *Manager) failedRequirement(j *job) bool {
	for _, name := range j.unit.words("Unit", "Requires") {
		if required := m.units[name]; required != nil && required.failed() {
			m.report(j, Failed, fmt.Errorf("unit %s: required unit %s failed", j.unit.Name, name))
			return true
		}
	}
	return false
}

// awaitRequirements waits for the units of a boot that a unit requires and comes after, and says whether all are well.
func (m *Manager) awaitRequirements(j *job) bool {
	for _, name := range j.unit.words("Unit", "Requires") {
		required := m.units[name]
		if required == nil || !required.boots || !comesFirst(required.unit, j.unit) {
			continue
		}
		select {
		case <-required.settled:
		case <-m.ctx.Done():
			return false
		}
	}
	return !m.failedRequirement(j)
}

// comesFirst says whether a is ordered before b: by name, or because it is early, which means before sysinit.target and
// without the default dependencies that order all other units after that.
func comesFirst(a, b *Unit) bool {
	return slices.Contains(b.words("Unit", "After"), a.Name) || slices.Contains(a.words("Unit", "Before"), b.Name) || a.early() && !b.early()
}

func (u *Unit) early() bool {
	defaults, err := u.yes("Unit", "DefaultDependencies", "yes")
	return err == nil && !defaults && slices.Contains(u.words("Unit", "Before"), "sysinit.target")
}

// report tells what became of a unit, unless the host is being switched off.
func (m *Manager) report(j *job, state State, err error) {
	if m.ctx.Err() != nil {
		return
	}
	m.Changed(j.unit.Name, state, err)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == "" {
		close(j.settled)
	}
	j.state = state
}

// environ is a service's environment as a list, with a stable order.
func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.SortFunc(list, strings.Compare)
	return list
}
