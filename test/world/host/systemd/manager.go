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

// Manager is the part of systemd that a boot needs: it starts the enabled units in order, and restarts them as
// configured.
type Manager struct {
	// Root is the directory with the host's file system.
	Root string

	// Command returns a unit's command that runs inside Root. It is killed when ctx is done.
	Command func(ctx context.Context, unit string, argv, env []string) *exec.Cmd

	// Run runs a unit's command and waits for it. It calls started as soon as the program runs.
	Run func(cmd *exec.Cmd, started func()) error

	// Started is called for each started main program.
	Started func(unit string, argv []string)

	// Changed is called for each unit that becomes active or fails. Both are called from several goroutines.
	Changed func(unit string, state State, err error)

	ctx   context.Context
	tasks sync.WaitGroup
	wants map[string][]string

	units map[string]*job
}

// State is the state of a unit.
type State string

const (
	// Active units run, or have succeeded.
	Active State = "active"
	// Skipped units have a false condition.
	Skipped State = "skipped"
	// Restarting units have failed or exited and will be restarted.
	Restarting State = "restarting"
	// Failed units are not restarted.
	Failed State = "failed"
)

// job is a unit of this boot.
type job struct {
	unit *Unit

	// boots is true if the boot starts it, and not only a path unit.
	boots bool

	// running is held while the unit is active or starting.
	running sync.Mutex

	// starts are the times of the last starts, for the start limit. Guarded by running.
	starts []time.Time

	// settled is closed after the unit's first start, successful or not. Units that are ordered after it can then
	// start.
	settled chan struct{}

	mu    sync.Mutex
	state State
}

func (j *job) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state == Failed
}

// Boot starts the units that a target wants and their dependencies. It returns an error for unsupported units before it
// starts a unit. Otherwise it returns when ctx is done and all commands have exited. It reports failed units with
// Changed, because a real host continues with failed units.
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

// load reads the named units, their dependencies, and the units that their path units start.
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

// runs reports whether a unit runs a program. Targets, mounts and devices of the image already exist when a simulated
// host boots.
func runs(name string) bool {
	switch kind(name) {
	case "target", "mount", "device", "slice", "socket":
		return false
	}
	return true
}

// validate finds errors at boot that would otherwise occur when the unit is started.
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

// needs returns the units that are started with this unit.
func (m *Manager) needs(u *Unit) []string {
	return slices.Concat(u.words("Unit", "Requires"), u.words("Unit", "Wants"), m.wants[u.Name])
}

// closure returns names and their dependencies without duplicates.
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

// startInOrder waits for the units in others that are ordered before j, then starts j.
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

// failedRequirement reports a unit as failed if a unit in its Requires= has failed.
func (m *Manager) failedRequirement(j *job) bool {
	for _, name := range j.unit.words("Unit", "Requires") {
		if required := m.units[name]; required != nil && required.failed() {
			m.report(j, Failed, fmt.Errorf("unit %s: required unit %s failed", j.unit.Name, name))
			return true
		}
	}
	return false
}

// awaitRequirements waits for the required units that are ordered before a unit, and reports whether none has failed.
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

// comesFirst reports whether a is ordered before b: by name, or because it is early, which is before sysinit.target and
// without the default dependencies that order all other units after it.
func comesFirst(a, b *Unit) bool {
	return slices.Contains(b.words("Unit", "After"), a.Name) || slices.Contains(a.words("Unit", "Before"), b.Name) || a.early() && !b.early()
}

func (u *Unit) early() bool {
	defaults, err := u.yes("Unit", "DefaultDependencies", "yes")
	return err == nil && !defaults && slices.Contains(u.words("Unit", "Before"), "sysinit.target")
}

// report reports the state of a unit, unless the host is being powered off.
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

// environ returns a service's environment as a sorted list.
func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.SortFunc(list, strings.Compare)
	return list
}
