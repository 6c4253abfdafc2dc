package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
)

const (
	systemctl  = "systemctl"
	journalctl = "journalctl"
)

// Limits of FailedLogs.
const (
	logsTimeout    = 20 * time.Second
	maxFailedUnits = 3
	maxLines       = 7   // systemd writes up to four of them when a unit fails
	maxLine        = 160 // in bytes
)

// notLoaded is the exit code of systemctl if systemd does not know the unit, as for service scripts (LSB).
const notLoaded = 5

// Manager controls the running units of a host. Methods return when the job of systemd has ended, and an error if the
// job failed. They can be repeated. The zero value is ready for use.
type Manager struct {
	Runner command.Runner
}

// DaemonReload makes systemd read all unit files again. It changes no running unit.
func (m Manager) DaemonReload(ctx context.Context) error {
	_, err := m.Runner.Run(ctx, systemctl, "daemon-reload")
	return err
}

// Reload makes a unit read its configuration again. It fails if the unit is not active, as in OpenShift.
func (m Manager) Reload(ctx context.Context, unit string) error { return m.run(ctx, "reload", unit) }

// Restart restarts a unit, and starts it if it is not active.
func (m Manager) Restart(ctx context.Context, unit string) error { return m.run(ctx, "restart", unit) }

// Stop stops a unit, or all instances of a template. It is no error if nothing is active, or nothing exists.
func (m Manager) Stop(ctx context.Context, unit string) error {
	if prefix, suffix, isTemplate := strings.Cut(unit, "@."); isTemplate {
		unit = prefix + "@*." + suffix
	}
	err := m.run(ctx, "stop", unit)
	if command.ExitCode(err) == notLoaded {
		return nil
	}
	return err
}

// run runs a job, and waits for its end. If the time is over before, it cancels the job: it would go on, and later jobs
// of the unit would wait for it.
func (m Manager) run(ctx context.Context, verb, unit string) error {
	_, err := m.Runner.Run(ctx, systemctl, verb, "--", unit)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		m.cancel(unit)
	}
	return err
}

// cancel cancels the job of a unit if it has one.
func (m Manager) cancel(unit string) {
	ctx, stop := context.WithTimeout(context.Background(), logsTimeout)
	defer stop()
	if job, err := m.Runner.Run(ctx, systemctl, "show", "--property=Job", "--value", "--", unit); err == nil {
		if id := strings.TrimSpace(string(job)); id != "" && id != "0" {
			_, _ = m.Runner.Run(ctx, systemctl, "cancel", "--", id)
		}
	}
}

// Exists reports whether systemd finds a file of the unit, or of its template. A masked unit counts as one that does
// not exist: it can't be started.
func (m Manager) Exists(ctx context.Context, unit string) (bool, error) {
	state, err := m.Runner.Run(ctx, systemctl, "show", "--property=LoadState", "--value", "--", unit)
	if err != nil {
		return false, err
	}
	switch text := strings.TrimSpace(string(state)); text {
	case "not-found", "masked":
		return false, nil
	case "":
		return false, fmt.Errorf("systemd does not tell the state of %s: check with systemctl status %s", unit, unit)
	}
	return true, nil
}

// Reboot requests an ordinary reboot: services are stopped first. It returns when the request is accepted.
func (m Manager) Reboot(ctx context.Context) error {
	_, err := m.Runner.Run(ctx, systemctl, "--no-wall", "--no-block", "--check-inhibitors=no", "reboot")
	return err
}

// FailedLogs returns the names of units that failed, or that systemd starts again and again, each with the last lines
// of its journal in this boot, for people. It has a limited size, and is empty if there is none or systemd does not
// answer.
func (m Manager) FailedLogs(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, logsTimeout)
	defer cancel()
	output, err := m.Runner.Run(ctx, systemctl, "list-units", "--state=failed,"+autoRestart, "--plain", "--no-legend", "--no-pager", "--full")
	if err != nil {
		return ""
	}
	// What a unit wrote just before it failed can still be on its way to the journal.
	_, _ = m.Runner.Run(ctx, journalctl, "--sync")
	var text strings.Builder
	number := 0
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if number++; number > maxFailedUnits {
			text.WriteString("More units failed: see systemctl --failed.\n")
			break
		}
		unit, what := fields[0], " failed:\n"
		if len(fields) > 3 && fields[3] == autoRestart {
			what = " ended, and systemd starts it again:\n"
		}
		text.WriteString(shorten(unit) + what)
		logs, _ := m.Runner.Run(ctx, journalctl, "--unit="+unit, "--boot", fmt.Sprintf("--lines=%d", maxLines), "--output=cat", "--no-pager", "--quiet")
		for line := range strings.Lines(command.Clean(string(logs))) {
			text.WriteString("  " + shorten(strings.TrimSpace(line)) + "\n")
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// autoRestart is the state in which a unit that has ended waits until systemd starts it again.
const autoRestart = "auto-restart"

// shorten returns the beginning of a line.
func shorten(line string) string {
	if len(line) <= maxLine {
		return line
	}
	return strings.ToValidUTF8(line[:maxLine], "") + "…"
}
