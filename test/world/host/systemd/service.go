package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// systemd's defaults.
const (
	defaultTimeoutStart  = 90 * time.Second
	defaultRestartDelay  = 100 * time.Millisecond
	defaultLimitInterval = 10 * time.Second
	defaultLimitBurst    = "5"
)

// service has the settings of a service unit, with unexpanded variables.
type service struct {
	kind            string // Type=
	pre, main, post []command
	remain          bool   // RemainAfterExit=
	restart         string // Restart=
	restartDelay    time.Duration
	timeout         time.Duration // of the start; 0 is none
	limitInterval   time.Duration
	limitBurst      int
}

// service parses the unit's [Service] section.
func (u *Unit) service() (*service, error) {
	var (
		s    service
		errs [9]error
	)
	s.kind, errs[0] = u.oneOf("Service", "Type", "simple", "exec", "oneshot", "notify")
	s.restart, errs[1] = u.oneOf("Service", "Restart", "no", "always", "on-failure", "on-success")
	s.remain, errs[2] = u.yes("Service", "RemainAfterExit", "no")
	s.restartDelay, errs[3] = u.duration("Service", "RestartSec", defaultRestartDelay)
	timeout := defaultTimeoutStart
	if s.kind == "oneshot" {
		timeout = 0
	}
	s.timeout, errs[4] = u.duration("Service", "TimeoutStartSec", timeout)
	s.limitInterval, errs[5] = u.duration("Unit", "StartLimitIntervalSec", defaultLimitInterval)
	if _, err := fmt.Sscan(u.last("Unit", "StartLimitBurst", defaultLimitBurst), &s.limitBurst); err != nil {
		errs[6] = fmt.Errorf("unit %s: [Unit] StartLimitBurst=: %w", u.Name, err)
	}
	_, errs[7] = u.conditionsHold("/")
	for setting, commands := range map[string]*[]command{
		"ExecStartPre": &s.pre, "ExecStart": &s.main, "ExecStartPost": &s.post,
	} {
		for _, line := range u.list("Service", setting) {
			parsed, err := u.parseCommand(setting, line)
			errs[8] = errors.Join(errs[8], err)
			*commands = append(*commands, parsed)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if s.kind != "oneshot" && len(s.main) != 1 {
		return nil, fmt.Errorf("unit %s: [Service] ExecStart= is there %d times; Type=%s needs it once",
			u.Name, len(s.main), s.kind)
	}
	if s.kind == "oneshot" && (s.restart == "always" || s.restart == "on-success") {
		return nil, fmt.Errorf("unit %s: [Service] Restart=%s: systemd refuses it for Type=oneshot", u.Name, s.restart)
	}
	return &s, nil
}

// startAgain reports whether Restart= requires a restart after err.
func (s *service) startAgain(err error) bool {
	return s.restart == "always" || (err != nil) == (s.restart == "on-failure") && s.restart != "no"
}

// start starts a service, unless it runs, and restarts it according to Restart=. It returns when the service is
// inactive.
func (m *Manager) start(j *job) {
	if !j.running.TryLock() {
		return
	}
	defer j.running.Unlock()
	if j.unit.Masked {
		m.report(j, Skipped, nil)
		return
	}
	s, err := j.unit.service()
	if err != nil {
		m.report(j, Failed, err)
		return
	}
	for {
		if !j.mayStart(s) {
			m.report(j, Failed, fmt.Errorf("unit %s: started %d times within %s; giving up",
				j.unit.Name, s.limitBurst, s.limitInterval))
			return
		}
		holds, err := j.unit.conditionsHold(m.Root)
		if err == nil && !holds {
			m.report(j, Skipped, nil)
			return
		}
		if err == nil {
			err = m.activate(j, s)
		}
		switch {
		case m.ctx.Err() != nil:
			return
		case s.startAgain(err):
			m.report(j, Restarting, err)
		case err != nil:
			m.report(j, Failed, err)
			return
		default:
			return
		}
		select {
		case <-m.ctx.Done():
			return
		case <-time.After(s.restartDelay):
		}
	}
}

// waitUntilInactive waits until the unit neither runs nor starts.
func (j *job) waitUntilInactive() {
	j.running.Lock()
	defer j.running.Unlock()
}

// mayStart counts a start against the unit's start limit.
func (j *job) mayStart(s *service) bool {
	now := time.Now()
	j.starts = slices.DeleteFunc(j.starts, func(t time.Time) bool { return now.Sub(t) > s.limitInterval })
	if s.limitInterval > 0 && len(j.starts) >= s.limitBurst {
		return false
	}
	j.starts = append(j.starts, now)
	return true
}

// activate runs a service once. It returns nil when the service has succeeded.
func (m *Manager) activate(j *job, s *service) error {
	variables, err := j.unit.environment(m.Root)
	if err != nil {
		return err
	}
	// The service runs until ctx is done, its start must succeed before starting is done.
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	starting, started := ctx, context.CancelFunc(func() {})
	if s.timeout > 0 {
		starting, started = context.WithTimeoutCause(ctx, s.timeout,
			fmt.Errorf("unit %s: not started within %s", j.unit.Name, s.timeout))
	}
	defer started()

	if err := m.runAll(starting, j.unit, s.pre, variables); err != nil {
		return err
	}
	if s.kind == "oneshot" {
		if err := m.runAll(starting, j.unit, slices.Concat(s.main, s.post), variables); err != nil {
			return err
		}
		m.report(j, Active, nil)
		if s.remain {
			<-ctx.Done()
		}
		return nil
	}
	ended, err := m.launch(ctx, starting, j.unit, s, variables)
	if err == nil {
		err = m.runAll(starting, j.unit, s.post, variables)
	}
	if err != nil {
		cancel()
		if ended != nil {
			err = fmt.Errorf("%w; then %w", err, <-ended)
		}
		return err
	}
	m.report(j, Active, nil)
	err = <-ended
	if err == nil && s.remain {
		<-ctx.Done()
	}
	if s.main[0].mayFail {
		return nil
	}
	return err
}
