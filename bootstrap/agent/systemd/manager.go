package systemd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const systemctl = "systemctl"

// cancelTimeout is how long it may take to cancel a job, and to find out what it waits for.
const cancelTimeout = 20 * time.Second

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

// Reload makes a unit read its configuration again. One that failed, or that systemd is about to start again after a
// failure, is started: its configuration can be why. For another one that is not active, it does nothing, and reads is
// false.
func (m Manager) Reload(ctx context.Context, unit string) (reads bool, err error) {
	states, err := m.States(ctx, unit)
	if err != nil {
		return false, err
	}
	verb := "reload"
	for _, s := range states {
		switch {
		case s.Active == "failed", s.IsRestarting() && s.Result != "success":
			verb = "restart"
		case s.Load != "not-found" && (s.Active == "inactive" || s.Active == "deactivating" || s.IsRestarting()):
			return false, nil
		}
	}
	return true, m.run(ctx, []string{verb}, unit)
}

// Restart restarts a unit, and starts it if it is not active.
func (m Manager) Restart(ctx context.Context, unit string) error {
	return m.run(ctx, []string{"restart"}, unit)
}

// Stop stops those units that are active, or all active instances of templates, all at the same time and only them: a
// unit that requires one of them goes on without it, because nothing would start it again. systemd forgets how they
// failed before. It is no error if a unit is not active, or does not exist.
func (m Manager) Stop(ctx context.Context, units ...string) error {
	patterns := make([]string, len(units))
	for i, unit := range units {
		patterns[i] = unit
		if prefix, suffix, isTemplate := strings.Cut(unit, "@."); isTemplate {
			patterns[i] = prefix + "@*." + suffix
		}
	}
	if len(patterns) == 0 {
		return nil
	}
	rows, err := m.list(ctx, "list-units", append([]string{"--all", "--"}, patterns...)...)
	if err != nil {
		return err
	}
	var active, failed []string
	for _, row := range rows {
		switch row[2] {
		case "inactive":
		case "failed":
			failed = append(failed, row[0])
		default:
			active = append(active, row[0])
		}
	}
	if len(active) > 0 {
		err = m.run(ctx, []string{"stop", "--job-mode=ignore-requirements"}, active...)
	}
	if ended := slices.Concat(failed, active); len(ended) > 0 {
		_, _ = m.Runner.Run(ctx, systemctl, append([]string{"reset-failed", "--"}, ended...)...) // it fails for a unit that systemd has forgotten
	}
	return err
}

// Start starts those units that something active wants or requires, all at the same time, as a boot does. It leaves out
// others, and units that do not exist or are masked.
func (m Manager) Start(ctx context.Context, units ...string) error {
	units = withoutTemplates(units)
	loaded, err := m.show(ctx, units, "LoadState", "WantedBy", "RequiredBy", "UpheldBy")
	if err != nil {
		return err
	}
	var wanted []string
	for i, unit := range loaded {
		if unit["LoadState"] != "loaded" {
			continue
		}
		by := strings.Fields(unit["WantedBy"] + " " + unit["RequiredBy"] + " " + unit["UpheldBy"])
		if len(by) == 0 {
			continue
		}
		switch _, err := m.Runner.Run(ctx, systemctl, append([]string{"is-active", "--quiet", "--"}, by...)...); {
		case err == nil: // one is enough
			wanted = append(wanted, units[i])
		case command.ExitCode(err) < 1:
			return err
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return m.run(ctx, []string{"start"}, wanted...)
}

// Overrides returns from which files systemd has loaded units other than those of a configuration and of the operating
// system, whose files are in /usr: drop-ins, and files that take the place of a unit's file in the configuration. It
// also returns units that are masked, and not by the configuration. All are sorted. configured has the paths of the
// configuration. Templates are left out: systemd loads instances only.
func (m Manager) Overrides(ctx context.Context, units []string, configured map[string]bool) (dropIns, files, masked []string, err error) {
	units = withoutTemplates(units)
	loaded, err := m.show(ctx, units, "LoadState", "FragmentPath", "DropInPaths")
	if err != nil {
		return nil, nil, nil, err
	}
	for i, unit := range loaded {
		own, fragment := path.Join(hosttree.UnitDirectory, units[i]), unit["FragmentPath"]
		switch {
		case unit["LoadState"] == "masked" && !configured[own]:
			masked = append(masked, units[i])
		case configured[own] && strings.HasPrefix(fragment, "/") && fragment != own && fragment != hosttree.MaskTarget:
			files = append(files, fragment)
		}
		for _, dropIn := range paths(unit["DropInPaths"]) {
			if !configured[dropIn] && !strings.HasPrefix(dropIn, "/usr/") && !strings.HasPrefix(dropIn, "/lib/") {
				dropIns = append(dropIns, dropIn)
			}
		}
	}
	for _, list := range []*[]string{&dropIns, &files, &masked} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return dropIns, files, masked, nil
}

// paths returns absolute paths that are separated by spaces. One that has spaces is in quotes, but not in old versions.
func paths(list string) (paths []string) {
	for part := range strings.SplitSeq(list, " ") {
		switch {
		case strings.HasPrefix(strings.TrimPrefix(part, `"`), "/"):
			paths = append(paths, part)
		case len(paths) > 0:
			paths[len(paths)-1] += " " + part
		}
	}
	for i := range paths {
		paths[i] = strings.Trim(paths[i], `"`)
	}
	return paths
}

// run runs a job of each unit, and waits for their ends. If the time is over before, it cancels the jobs: they would go
// on, and later jobs of the units would wait for them. The error says for which units the jobs wait.
func (m Manager) run(ctx context.Context, verb []string, units ...string) error {
	_, err := m.Runner.Run(ctx, systemctl, slices.Concat(verb, []string{"--"}, units)...)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		var waitsFor []string
		for _, unit := range units {
			waitsFor = append(waitsFor, m.cancel(unit)...)
		}
		slices.Sort(waitsFor)
		if waitsFor = slices.Compact(waitsFor); len(waitsFor) > 0 {
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
	if shown, err := m.show(ctx, []string{unit}, "Job"); err == nil && len(shown) > 0 && shown[0].number("Job") > 0 {
		_, _ = m.Runner.Run(ctx, systemctl, "cancel", "--", shown[0]["Job"])
	}
	return waitsFor
}

// Exists reports whether systemd finds a file of the unit, or of its template. A masked unit counts as one that does
// not exist: it can't be started.
func (m Manager) Exists(ctx context.Context, unit string) (bool, error) {
	shown, err := m.show(ctx, []string{unit}, "LoadState")
	if err != nil || len(shown) == 0 {
		return false, err
	}
	return shown[0]["LoadState"] != "not-found" && shown[0]["LoadState"] != "masked", nil
}

// Check runs Poolboot's check of the host, which looks at files and at the unit of the kubelet, and returns what it
// finds. The error says why it did not run.
func (m Manager) Check(ctx context.Context) (found []string, err error) {
	output, err := m.Runner.Run(ctx, "sh", ignition.CheckScriptPath, "list")
	if len(output) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(output)), "\n"), nil
}
