package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
)

const systemctl = "systemctl"

// cancelTimeout is how long it may take to cancel a job, and to find out what it waits for.
const cancelTimeout = 20 * time.Second

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
// of the unit would wait for it. The error says for which units the job waits.
func (m Manager) run(ctx context.Context, verb, unit string) error {
	_, err := m.Runner.Run(ctx, systemctl, verb, "--", unit)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if waitsFor := m.cancel(unit); len(waitsFor) > 0 {
			return fmt.Errorf("%w: it waits for %s", err, strings.Join(waitsFor, " and "))
		}
	}
	return err
}

// cancel cancels the job of a unit if it has one, and returns for which units it waited.
func (m Manager) cancel(unit string) (waitsFor []string) {
	ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
	defer stop()
	waitsFor, _ = m.waitsFor(ctx, unit)
	if job, err := m.Runner.Run(ctx, systemctl, "show", "--property=Job", "--value", "--", unit); err == nil {
		if id := strings.TrimSpace(string(job)); id != "" && id != "0" {
			_, _ = m.Runner.Run(ctx, systemctl, "cancel", "--", id)
		}
	}
	return waitsFor
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
