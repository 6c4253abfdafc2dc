package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
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
func (a *Agent) apply(ctx context.Context, node Node) (time.Duration, error) {
	mayContinue, err := a.resume()
	if err != nil {
		return now, err
	}
	if !mayContinue {
		return a.fail(fmt.Errorf("it was interrupted %d times while the host was changed", maxStarts+1))
	}
	work, done := a.carrying.begin(ctx, node, a.journal)
	defer done()
	u, err := a.loadUpdate()
	switch {
	case work.Err() != nil: // before anything else
	case errors.Is(err, errDocument):
		return a.fail(err)
	case err != nil:
		return now, err
	default:
		a.report.setUpdate(u, agentv1.Applying)
		err = a.carryOutUpdate(work, u)
	}
	switch {
	case ctx.Err() != nil:
		return now, ctx.Err() // the agent is stopped: the next one continues
	case work.Err() != nil:
		return a.supersede()
	case err != nil:
		return a.fail(err)
	case u.plan.Reboots():
		return a.beginReboot(ctx, u)
	}
	return a.enter(acting, func(j *journal) { j.Boot, j.ChangedAt = a.Clock.BootID(), a.Clock.Uptime() })
}

// carryOutUpdate prepares and carries out the operations of an update.
func (a *Agent) carryOutUpdate(ctx context.Context, u *hostUpdate) error {
	if err := a.prepare(ctx, u.plan.Operations); err != nil {
		return err
	}
	if err := a.stopFirst(ctx, u); err != nil {
		return err
	}
	hasFiles := false
	for _, operation := range u.plan.Operations {
		if operation.Kind == update.ChangePath && !hasFiles { // all in one transaction
			if err := a.applyFiles(ctx, u); err != nil {
				return err
			}
			hasFiles = true
		}
		if err := a.carryOut(ctx, operation); err != nil {
			return err
		}
	}
	if u.forced && !hasFiles { // of paths that no operation names, such as the keys of a user
		return a.applyFiles(ctx, u)
	}
	return nil
}

// prepare lets executors record what they need to undo the update.
func (a *Agent) prepare(ctx context.Context, operations []update.Operation) error {
	for _, one := range []struct {
		preparer Preparer
		kinds    []update.OperationKind
	}{
		{a.Executors.Accounts, []update.OperationKind{update.ChangeUser, update.ChangeGroup}},
		{a.Executors.Enablement, []update.OperationKind{update.ChangeEnablement}},
	} {
		own := without(operations, func(o update.Operation) bool { return !slices.Contains(one.kinds, o.Kind) })
		if len(own) == 0 {
			continue
		}
		if err := one.preparer.Prepare(ctx, own); err != nil {
			return err
		}
	}
	return nil
}

// refusal returns why the programs of the host can't carry out an update, or why it must not be, "" if they can or
// nobody knows.
func (a *Agent) refusal(ctx context.Context, u *hostUpdate) string {
	why := a.controlPlaneRefusal(u)
	for _, operation := range u.plan.Operations {
		if why != "" {
			break
		}
		executor, err := a.executor(operation)
		if err != nil {
			return err.Error()
		}
		if refuser, ok := executor.(Refuser); ok {
			why = refuser.Refusal(ctx, operation)
		}
	}
	if why == "" {
		return ""
	}
	return "the host can't change to " + u.after.Config.Name + ": " + why
}

// executor returns the executor of an operation, nil if there is nothing to do but to change files.
func (a *Agent) executor(operation update.Operation) (Executor, error) {
	switch operation.Kind {
	case update.ChangePath:
		if operation.Name != ignition.KubeadmJoinPath {
			return nil, nil
		}
		return a.Executors.KubeletFlags, nil
	case update.ChangeUser, update.ChangeGroup:
		return a.Executors.Accounts, nil
	case update.ChangeEnablement:
		return a.Executors.Enablement, nil
	case update.ChangeKernelArguments:
		return a.Executors.KernelArguments, nil
	case update.ChangeOS:
		return a.Executors.OS, nil
	}
	return nil, fmt.Errorf("this agent knows no operations of kind %s: it must be updated first", operation.Kind)
}

// applyFiles changes the files of the host, unless that was done before an interruption.
func (a *Agent) applyFiles(ctx context.Context, u *hostUpdate) error {
	if err := a.Files.Complete(); err != nil || a.Files.IsUnconfirmed() {
		return err
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

// carryOut carries out an operation.
func (a *Agent) carryOut(ctx context.Context, operation update.Operation) error {
	a.Log.Info("operation", "operation", operation.String())
	executor, err := a.executor(operation)
	if err != nil || executor == nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	return executor.Apply(limited, operation)
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

// reboot reboots the host once: in another boot, or after a soft reboot, the phase is over.
func (a *Agent) reboot(ctx context.Context, node Node) (time.Duration, error) {
	boot, softly := a.Clock.BootID(), time.Duration(0)
	if boot == a.journal.Boot {
		softly = a.softRebootedAt(ctx)
	}
	switch {
	case boot == a.journal.Boot && softly == 0:
	case a.journal.Phase == returning:
		return a.endUndo(ctx)
	default:
		return a.enter(verifying, func(j *journal) {
			j.Boot, j.ChangedAt, j.VerifiedSince, j.Boots, j.Started = boot, softly, a.Clock.Uptime(), 1, 0
			if softly > 0 {
				j.FirstBoot = ""
			}
		})
	}
	if a.requestedAt != 0 && a.Clock.Uptime()-a.requestedAt < rebootTimeout {
		return rebootTimeout, nil
	}
	if a.journal.Phase == rebooting && supersedes(node, a.journal) { // it can be that the host does not reboot at all
		return a.supersede()
	}
	method := a.journal.RebootMethod
	if method != update.FullReboot && a.journal.Reboots > 0 {
		return a.rebootFully(method, "it was requested and has not happened")
	}
	if a.journal.Reboots >= maxReboots {
		why := fmt.Errorf("the host has not rebooted, although that was requested %d times", maxReboots)
		if a.journal.Phase == returning {
			return a.endUndo(ctx, append(a.undoProblems(), why.Error()+": reboot it")...)
		}
		return a.fail(why)
	}
	if a.journal.Phase == returning {
		a.report.setUndo(a.journal.Failed.Of, agentv1.Rebooting, "the host returns to its previous configuration: "+a.journal.Failed.Why)
	} else if u, err := a.loadUpdate(); err == nil { // the reboot does not depend on what is reported
		a.report.setUpdate(u, agentv1.Rebooting)
		a.report.addFullReboot(a.journal)
	}
	if left := a.leftForMetal3(node); left > 0 { // Step reports it
		return left, nil
	}
	_ = a.publish(ctx, node) // the reboot does not depend on the API server
	if _, err := a.enter(a.journal.Phase, func(j *journal) { j.Reboots++ }); err != nil {
		return now, err
	}
	err := a.do(ctx, "reboot", func(ctx context.Context) error { return a.Executors.Rebooter.Reboot(ctx, method) })
	switch {
	case err != nil && method != update.FullReboot && ctx.Err() == nil:
		a.Log.Error("the host can't reboot by the method of its pool", "method", method, "error", command.Detail(err))
		return a.rebootFully(method, err.Error()+whereDetailsAre(err))
	case err != nil:
		return now, err
	}
	a.requestedAt = a.Clock.Uptime()
	return rebootTimeout, nil
}

// leftForMetal3 returns how much longer the host waits until Metal3 powers it off, or 0 if it reboots by itself.
func (a *Agent) leftForMetal3(node Node) time.Duration {
	if a.journal.Phase != rebooting || a.journal.Reboots+a.journal.Boots > 0 || node.Annotations[agentv1.Metal3RebootsAnnotation] != a.journal.Target {
		return 0
	}
	return max(rebootTimeout-(a.Clock.Uptime()-a.journal.ChangedAt), 0)
}

// commit makes the target the current configuration.
func (a *Agent) commit() (time.Duration, error) {
	if err := a.Files.Confirm(); err != nil {
		return now, err
	}
	target, disks := a.journal.Target, ""
	if t, err := a.load(target); err != nil || len(t.outdated) > 0 {
		disks = a.journal.disks()
	}
	a.current, a.units.seen, a.retriedAt = nil, nil, 0
	a.checkSoon()
	if _, err := a.enter(idle, func(j *journal) {
		*j = j.settled(target)
		j.Disks = disks
	}); err != nil {
		return now, err
	}
	return now, a.store.keep(append(a.journal.keptRevisions(), disks, target)...) // until here, the target is read with the disks of another
}
