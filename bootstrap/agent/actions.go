package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// act reloads and restarts units. If that fails, the update is undone.
func (a *Agent) act(ctx context.Context, node Node) (time.Duration, error) {
	mayContinue, err := a.resume()
	if err != nil {
		return now, err
	}
	if !mayContinue {
		return a.fail("it was interrupted %d times while units were restarted", maxStarts+1)
	}
	u, err := a.loadUpdate()
	if err != nil {
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
	restarted, err := a.runActions(ctx, u.plan.Actions)
	switch {
	case ctx.Err() != nil:
		return now, ctx.Err()
	case err != nil:
		logs := a.Executors.Units.FailedLogs(ctx)
		return a.fail("%v\n%s", err, logs)
	}
	if u.isRepair() || len(u.plan.Operations) == 0 {
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
		case update.Stop:
			run = func(ctx context.Context) error { return units.Stop(ctx, action.Unit) }
		case update.Reload:
			run = func(ctx context.Context) error { return units.Reload(ctx, action.Unit) }
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

// undoActions makes units use the previous configuration again. All actions are tried.
func (a *Agent) undoActions(ctx context.Context, u *hostUpdate) error {
	units := a.Executors.Units
	err := a.do(ctx, string(update.DaemonReload), units.DaemonReload)
	if a.journal.HasActed {
		for _, action := range u.plan.Actions {
			_, failed := a.runActions(ctx, []update.Action{action})
			err = errors.Join(err, failed)
		}
	}
	if !u.plan.Reboots() {
		for _, unit := range u.stoppedUnits() {
			err = errors.Join(err, a.do(ctx, "start "+unit, func(ctx context.Context) error { return units.Restart(ctx, unit) }))
		}
	}
	return err
}
