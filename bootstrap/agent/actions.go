package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// act reloads, restarts and starts units. If that fails, the update is undone.
func (a *Agent) act(ctx context.Context, node Node) (time.Duration, error) {
	mayContinue, err := a.resume()
	if err != nil {
		return now, err
	}
	if !mayContinue {
		return a.fail(fmt.Errorf("it was interrupted %d times while units were restarted", maxStarts+1))
	}
	work, done := a.carrying.begin(ctx, node, a.journal)
	defer done()
	if work.Err() != nil && ctx.Err() == nil {
		return a.supersede()
	}
	u, err := a.loadUpdate()
	switch {
	case errors.Is(err, errDocument):
		return a.fail(err)
	case err != nil:
		return now, err
	}
	a.report.setUpdate(u, agentv1.Applying)
	if _, err := a.enter(acting, func(j *journal) {
		j.Boot, j.ChangedAt, j.HasActed = a.Clock.BootID(), a.Clock.Uptime(), true
		j.VerifiedSince = j.ChangedAt
		if node.Known {
			j.Heartbeat = node.Heartbeat
		}
	}); err != nil {
		return now, err
	}
	restarted, err := a.runActions(work, actionsOf(u.plan.Steps))
	if err == nil {
		err = a.startUnits(work, unitsToStart(u.plan.Steps))
	}
	switch {
	case ctx.Err() != nil:
		return now, ctx.Err()
	case work.Err() != nil:
		return a.supersede()
	case err != nil:
		return a.fail(fmt.Errorf("%w%s", err, a.failingUnits(ctx, "")))
	}
	if u.isRepair() || len(u.plan.Operations) == 0 && !restartsKubelet(u.plan.Actions) {
		return a.enter(committing, nil) // a repair does not depend on the cluster, nor does what changes nothing
	}
	return a.enter(verifying, func(j *journal) { j.ChangedAt = max(j.ChangedAt, restarted) })
}

// runActions runs the actions of a plan other than Drain and Reboot, each once. systemd reads its units first: a unit
// that restarts because of one change must also start with the others. It returns the uptime at which the kubelet was
// restarted, or 0: what the kubelet reported before says nothing about the one that runs then.
func (a *Agent) runActions(ctx context.Context, actions []update.Action) (restarted time.Duration, _ error) {
	units := a.Executors.Units
	done := map[update.Action]bool{}
	isReload := func(action update.Action) bool { return action.Type == update.DaemonReload }
	if i := slices.IndexFunc(actions, isReload); i > 0 {
		actions = slices.Insert(slices.Clone(actions), 0, actions[i])
	}
	for _, action := range actions {
		if done[action] {
			continue
		}
		done[action] = true
		var run func(context.Context) error
		switch action.Type {
		case update.DaemonReload:
			run = units.DaemonReload
		case update.Stop: // of a unit that the kubelet needs: Units stops no others with it
			run = func(ctx context.Context) error { return units.Stop(ctx, ignition.KubeletUnit, action.Unit) }
		case update.Reload:
			run = func(ctx context.Context) error {
				reads, err := units.Reload(ctx, action.Unit)
				if err == nil && !reads {
					a.Log.Info("nothing to reload: the unit is not active", "unit", action.Unit)
				}
				return err
			}
		case update.Restart:
			run = func(ctx context.Context) error { return units.Restart(ctx, action.Unit) }
		default:
			continue
		}
		if action.IfExists {
			exists, err := units.Exists(ctx, action.Unit)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", action, err)
			}
			if !exists {
				continue
			}
		}
		if restartsKubelet([]update.Action{action}) {
			restarted = a.Clock.Uptime()
		}
		if err := a.do(ctx, action.String(), run); err != nil {
			return 0, err
		}
	}
	return restarted, nil
}

// actionsOf returns the actions of steps. systemd also reads its units again if some stop or start: their files and
// links changed.
func actionsOf(steps update.Steps) []update.Action {
	if len(steps.Stop)+len(steps.Start) == 0 {
		return steps.Actions
	}
	return append([]update.Action{{Type: update.DaemonReload}}, steps.Actions...)
}

// unitsToStart returns the units that start after the actions: also those that stopped, if they still exist and
// something wants them.
func unitsToStart(steps update.Steps) []string {
	units := slices.Concat(steps.Start, steps.Stop)
	slices.Sort(units)
	return slices.Compact(units)
}

// stopFirst stops the units that an update stops, while systemd still knows how. Before a reboot, it only helps: what a
// unit that goes on is in the way of fails by itself.
func (a *Agent) stopFirst(ctx context.Context, u *hostUpdate) error {
	err := a.stopUnits(ctx, u.plan.Stop)
	if err != nil && u.plan.Reboots() && ctx.Err() == nil {
		a.Log.Error("a unit did not stop before the reboot", "error", err)
		return nil
	}
	return err
}

// stopUnits stops all units at the same time, within the time limit of one action.
func (a *Agent) stopUnits(ctx context.Context, units []string) error {
	if len(units) == 0 {
		return nil
	}
	return a.do(ctx, "stop "+strings.Join(units, " "), func(ctx context.Context) error { return a.Executors.Units.Stop(ctx, units...) })
}

// startUnits starts all units at the same time, within the time limit of one action.
func (a *Agent) startUnits(ctx context.Context, units []string) error {
	if len(units) == 0 {
		return nil
	}
	return a.do(ctx, "start "+strings.Join(units, " "), func(ctx context.Context) error { return a.Executors.Units.Start(ctx, units...) })
}
