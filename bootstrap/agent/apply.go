package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// resume counts a phase that an earlier start of the agent began, and reports false if that happened too often.
func (a *Agent) resume() (mayContinue bool, err error) {
	if !a.continued {
		return true, nil
	}
	a.continued = false
	if a.journal.Starts >= maxStarts {
		return false, nil
	}
	_, err = a.enter(a.journal.Phase, func(j *journal) { j.Starts++ })
	return true, err
}

// apply carries out the operations of the update. If that fails, the update is undone.
func (a *Agent) apply(ctx context.Context) (time.Duration, error) {
	mayContinue, err := a.resume()
	if err != nil {
		return now, err
	}
	if !mayContinue {
		return a.fail("it was interrupted %d times while the host was changed", maxStarts+1)
	}
	u, err := a.loadUpdate()
	if err != nil {
		return now, err
	}
	a.report.setUpdate(u, agentv1.Applying)
	err = a.prepare(ctx, u)
	if err == nil {
		err = a.stopFirst(ctx, u)
	}
	if err == nil {
		err = a.carryOut(ctx, u.plan.Operations, func() error { return a.applyFiles(ctx, u) })
	}
	switch {
	case ctx.Err() != nil:
		return now, ctx.Err() // the agent is stopped: the next one continues
	case err != nil:
		return a.fail("%v", err)
	case u.plan.Reboots():
		return a.enter(rebooting, func(j *journal) { j.Boot = a.Clock.BootID() })
	}
	return a.enter(acting, func(j *journal) { j.Boot, j.ChangedAt = a.Clock.BootID(), a.Clock.Uptime() })
}

// prepare lets executors record what they need to undo the update.
func (a *Agent) prepare(ctx context.Context, u *hostUpdate) error {
	kinds := u.operations()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		executor, err := a.executor(kind)
		if err != nil {
			return err
		}
		if preparer, ok := executor.(Preparer); ok {
			if err := preparer.Prepare(ctx, kinds[kind]); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusal returns why the programs of the host can't carry out an update, "" if they can or nobody knows.
func (a *Agent) refusal(ctx context.Context, u *hostUpdate) string {
	kinds := u.operations()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		executor, err := a.executor(kind)
		if err != nil {
			return err.Error()
		}
		if refuser, ok := executor.(Refuser); ok {
			if why := refuser.Refusal(ctx, kinds[kind]); why != "" {
				return "the host can't change to " + u.after.Config.Name + ": " + why
			}
		}
	}
	return ""
}

// executor returns the executor of a kind of operations.
func (a *Agent) executor(kind update.OperationKind) (Executor, error) {
	switch kind {
	case update.ChangePath:
		return a.Executors.KubeletFlags, nil
	case update.ChangeUser:
		return a.Executors.Accounts, nil
	case update.ChangeEnablement:
		return a.Executors.Enablement, nil
	case update.ChangeKernelArguments:
		return a.Executors.KernelArguments, nil
	case update.ChangeOS:
		return a.Executors.OS, nil
	}
	return nil, fmt.Errorf("this agent knows no operations of kind %s: it must be updated first", kind)
}

// applyFiles changes the files of the host, unless that was done before an interruption.
func (a *Agent) applyFiles(ctx context.Context, u *hostUpdate) error {
	if _, err := a.Files.Recover(hostfiles.Complete); err != nil {
		return err
	}
	if a.Files.IsUnconfirmed() {
		return nil
	}
	host, err := a.host(ctx)
	if err != nil {
		return err
	}
	changes, err := a.pathChanges(u, host)
	if err != nil {
		return err
	}
	return a.Files.Apply(changes, u.overwrites())
}

// carryOut carries out operations, in their order. Those of files are neighbors, and one call changes all of them.
func (a *Agent) carryOut(ctx context.Context, operations []update.Operation, changeFiles func() error) error {
	for len(operations) > 0 {
		kind := executorOf(operations[0].Kind)
		end := slices.IndexFunc(operations, func(o update.Operation) bool { return executorOf(o.Kind) != kind })
		if end < 0 {
			end = len(operations)
		}
		group := operations[:end]
		operations = operations[end:]
		if err := a.carryOutGroup(ctx, kind, group, changeFiles); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) carryOutGroup(ctx context.Context, kind update.OperationKind, group []update.Operation, changeFiles func() error) error {
	for _, operation := range group {
		a.Log.Info("operation", "operation", operation.String())
	}
	if kind == update.ChangePath {
		if err := changeFiles(); err != nil {
			return err
		}
	}
	executor, err := a.executor(kind)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	return executor.Apply(limited, group)
}

// do runs an action with the time limit of actions.
func (a *Agent) do(ctx context.Context, what string, action func(context.Context) error) error {
	a.Log.Info("action", "action", what)
	limited, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	err := action(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: it did not end within %s: %w", what, actionTimeout, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// reboot reboots the host once: in another boot, the phase is over.
func (a *Agent) reboot(ctx context.Context, node Node) (time.Duration, error) {
	if boot := a.Clock.BootID(); boot != a.journal.Boot {
		if a.journal.Phase == returning {
			return a.enter(idle, func(j *journal) { j.Target, j.Drift = "", nil })
		}
		return a.enter(verifying, func(j *journal) { j.Boot, j.ChangedAt, j.VerifiedSince, j.Boots = boot, 0, a.Clock.Uptime(), 1 })
	}
	if a.requestedAt != 0 && a.Clock.Uptime()-a.requestedAt < rebootTimeout {
		return rebootTimeout, nil
	}
	if a.journal.Phase == returning {
		a.report.set(a.journal.Failed.Of, agentv1.Rebooting, "the host returns to its previous configuration: "+a.journal.Failed.Why)
	} else {
		u, err := a.loadUpdate()
		if err != nil {
			return now, err
		}
		a.report.setUpdate(u, agentv1.Rebooting)
	}
	_ = a.publish(ctx, node) // the reboot does not depend on the API server
	if err := a.do(ctx, "reboot", a.Executors.Rebooter.Reboot); err != nil {
		return now, err
	}
	a.requestedAt = a.Clock.Uptime()
	return rebootTimeout, nil
}

// commit makes the target the current configuration.
func (a *Agent) commit() (time.Duration, error) {
	if a.Files.IsUnconfirmed() || a.Files.IsInterrupted() {
		// If it was interrupted, Recover completes the confirmation.
		if outcome, err := a.Files.Recover(hostfiles.Complete); err != nil {
			return now, err
		} else if outcome == hostfiles.Nothing {
			if err := a.Files.Confirm(); err != nil {
				return now, err
			}
		}
	}
	target := a.journal.Target
	if err := a.store.keep(target); err != nil {
		return now, err
	}
	a.current = nil
	a.CheckSoon()
	return a.enter(idle, func(j *journal) {
		*j = journal{Phase: idle, Current: target, SingleKeysFile: j.SingleKeysFile, RefusedProgram: j.RefusedProgram}
	})
}

// fail begins to undo the update.
func (a *Agent) fail(format string, args ...any) (time.Duration, error) {
	why := shorten(strings.TrimSpace(fmt.Sprintf(format, args...)), agentv1.MaxReason)
	a.Log.Error("the update failed and is undone", "revision", a.journal.Target, "reason", why)
	return a.enter(undoing, func(j *journal) { j.Starts, j.Failed = 0, &failure{Of: j.Target, Why: why} })
}

// errInterrupted means that the actions after an update was undone interrupted the agent too often.
var errInterrupted = errors.New("units were not restarted, because that interrupted the agent: restart them, or reboot the host")

// undo returns to the configuration before the update. It is repeated until it succeeds.
func (a *Agent) undo(ctx context.Context) (time.Duration, error) {
	mayAct, err := a.resume()
	if err != nil {
		return now, err
	}
	u, err := a.loadUpdate()
	if err != nil {
		return now, err
	}
	a.report.set(a.journal.Target, agentv1.Applying, "the update failed and is being undone: "+a.journal.Failed.Why)
	if err := a.stopUnits(ctx, u.plan.Undo.Stop); err != nil { // if that is in the way of an operation, it fails
		a.Log.Error("a unit did not stop", "error", err)
	}
	if err := a.carryOut(ctx, update.Undo(u.plan.Operations), a.undoFiles); err != nil {
		return now, fmt.Errorf("undo the update: %w", err)
	}
	if err := a.undoFiles(); err != nil { // also if the update changes files only because it is forced
		return now, fmt.Errorf("undo the update: %w", err)
	}
	hasBooted := a.Clock.BootID() != a.journal.FirstBoot
	if u.plan.Reboots() && hasBooted {
		return a.enter(returning, func(j *journal) { j.Boot = a.Clock.BootID() })
	}
	err = errInterrupted
	if mayAct {
		err = a.undoActions(ctx, u)
	}
	if ctx.Err() != nil {
		return now, ctx.Err()
	}
	if err != nil {
		a.Log.Error("an action failed after the update was undone", "error", err)
		a.journal.Failed.Why = shorten(a.journal.Failed.Why+"\nAfter the update was undone: "+err.Error(), agentv1.MaxReason)
	}
	a.CheckSoon()
	return a.enter(idle, func(j *journal) { j.Target, j.Drift = "", nil })
}

// undoFiles returns to the confirmed files.
func (a *Agent) undoFiles() error {
	if _, err := a.Files.Recover(hostfiles.Undo); err != nil {
		return err
	}
	if a.Files.IsUnconfirmed() {
		return a.Files.RollBack()
	}
	return nil
}
