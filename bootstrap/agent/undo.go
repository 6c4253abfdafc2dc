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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

const (
	// undoTimeout is how long one step of an undo may take. That of the operating system has operationTimeout.
	undoTimeout = 15 * time.Minute
	// maxUnread is how often an undo tries to read what it undoes.
	maxUnread = 3
	// maxRetries is how often a try to restore what an undo left over may interrupt the agent.
	maxRetries = 3
)

// fail begins to undo the update.
func (a *Agent) fail(err error) (time.Duration, error) {
	a.Log.Error("the update failed and is undone", "revision", a.journal.Target, "error", err)
	return a.beginUndo(failure{Of: a.journal.Target, Why: shorten(strings.TrimSpace(err.Error()+whereDetailsAre(err)), agentv1.MaxReason)})
}

func (a *Agent) beginUndo(why failure) (time.Duration, error) {
	a.unread = 0
	return a.enter(undoing, func(j *journal) { j.Starts, j.Reboots, j.Failed = 0, 0, &why })
}

// undo returns to the configuration before the update. It always ends: each step is tried, what fails is tried once
// more at the end, and then it is left over, and the host reboots. Each step is recorded when it has ended. One that
// interrupts the agent too often is left over, too.
func (a *Agent) undo(ctx context.Context) (time.Duration, error) {
	mayContinue, err := a.resume()
	if err != nil {
		return now, err
	}
	u, err := a.loadUndone()
	if err != nil {
		return now, err
	}
	a.reportUndo()
	steps := a.undoSteps(u)
	for a.journal.Step < len(steps) {
		step, left, err := steps[a.journal.Step], []leftEntry(nil), error(nil)
		if mayContinue {
			left, err = a.runStep(ctx, step)
		} else {
			left, err = a.omit(step, fmt.Errorf("it interrupted the agent %d times", maxStarts+1))
		}
		if ctx.Err() != nil {
			return now, ctx.Err()
		}
		for _, entry := range left {
			a.Log.Error("an entry could not be restored", "entry", entry.String(), "error", entry.Why)
		}
		if _, err := a.enter(undoing, func(j *journal) {
			j.Step, j.Starts, j.LeftOver, j.UndoErrors = j.Step+1, 0, withLeft(j.LeftOver, left), maps.Clone(j.UndoErrors)
			delete(j.UndoErrors, step.what) // of an earlier try
			if err != nil {
				a.Log.Error("a step of the undo failed", "step", step.what, "error", err)
				if j.UndoErrors == nil {
					j.UndoErrors = map[string]string{}
				}
				j.UndoErrors[step.what] = shorten(err.Error(), maxLeftWhy)
			}
		}); err != nil {
			return now, err
		}
		mayContinue = true
	}
	hasBooted := a.Clock.BootID() != a.journal.FirstBoot
	isIncomplete := u == nil || len(a.journal.UndoErrors) > 0 || len(a.ownLeftOver()) > 0 || slices.ContainsFunc(a.Files.LeftOver(), func(entry hostfiles.LeftOver) bool {
		return !slices.Contains(a.journal.FilesLeft, entry.Path)
	})
	if isIncomplete && (u == nil || !u.isRepair()) || u != nil && u.plan.Reboots() && hasBooted {
		return a.enter(returning, func(j *journal) { j.Boot, j.Reboots = a.Clock.BootID(), 0 })
	}
	return a.endUndo(ctx, a.undoProblems()...)
}

// undoProblems returns the errors of the undo besides those of operations, for people.
func (a *Agent) undoProblems() (problems []string) {
	for _, what := range slices.Sorted(maps.Keys(a.journal.UndoErrors)) {
		problems = append(problems, what+": "+a.journal.UndoErrors[what])
	}
	return problems
}

// loadUndone returns the update that is undone, nil if its documents can't be read. That is recorded, and stays so.
func (a *Agent) loadUndone() (*hostUpdate, error) {
	if a.journal.IsUnread {
		return nil, nil
	}
	u, err := a.loadUpdate()
	if err == nil {
		return u, nil
	}
	if a.unread++; !errors.Is(err, errDocument) && a.unread < maxUnread {
		return nil, err
	}
	a.Log.Error("only files are restored, because the update can't be read", "error", err)
	why := "\nOnly files were restored, because the update can't be read: " + err.Error() +
		". Users, units and kernel arguments that it added can be left over: remove them, or replace the host."
	_, err = a.enter(undoing, func(j *journal) { j.IsUnread, j.Step, j.Failed = true, 0, j.Failed.with(why) })
	return nil, err
}

func (a *Agent) reportUndo() {
	text := "the update failed and is being undone: "
	if a.journal.Failed.IsSuperseded {
		text = "the update is being undone: "
	}
	a.report.set(a.journal.Target, agentv1.Applying, text+a.journal.Failed.Why)
}

// endUndo ends the update. The problems are added to why the update failed. What is still left over is tried again with
// the next check of the host.
func (a *Agent) endUndo(ctx context.Context, problems ...string) (time.Duration, error) {
	if err := a.restoreOwn(ctx); err != nil { // it is found as a difference
		a.Log.Error("Poolboot's own files could not be restored", "error", err)
	}
	a.checkSoon()
	a.retriedAt = 0
	return a.enter(idle, func(j *journal) {
		failed := j.Failed
		for _, problem := range problems {
			failed = failed.with("\nAfter the update was undone: " + problem)
		}
		*j = j.settled(j.Current)
		if !failed.IsSuperseded {
			j.Failed = failed
		}
	})
}

// undoStep is a step of an undo: operations of one executor, or something else that it runs.
type undoStep struct {
	what       string
	operations []update.Operation
	run        func(ctx context.Context) error
}

// undoSteps returns the steps that undo an update, in their order. The update is nil if it can't be read: then only
// files return, of which hostfiles has records.
func (a *Agent) undoSteps(u *hostUpdate) []undoStep {
	files := undoStep{what: "files", run: func(context.Context) error { return a.undoFiles() }}
	if u == nil {
		return []undoStep{files}
	}
	steps := []undoStep{{what: "units that the update added", run: func(ctx context.Context) error { return a.stopUnits(ctx, u.plan.Undo.Stop) }}}
	for _, group := range groupsOf(update.Undo(u.plan.Operations)) {
		if executorOf(group[0].Kind) == update.ChangePath { // the operations are what follows from the files
			steps = append(steps, files)
		}
		steps = append(steps, undoStep{what: "operations", operations: group})
	}
	return append(steps,
		files, // also if the update changes files only because it is forced
		undoStep{what: "units", run: func(ctx context.Context) error { return a.undoActions(ctx, u) }},
		undoStep{what: "the second try", run: func(ctx context.Context) error {
			a.retryFiles()
			if err := a.retryLeftOver(ctx, a.journal.Target); err != nil { // it stays left over
				a.Log.Error("what is left over could not be restored", "error", err)
			}
			return nil
		}},
	)
}

// runStep carries out a step. It returns the operations that are left over, or why the step failed.
func (a *Agent) runStep(ctx context.Context, step undoStep) ([]leftEntry, error) {
	if step.run != nil {
		return nil, step.run(ctx)
	}
	return a.undoGroup(ctx, step.operations), nil
}

// omit returns what is left over of a step that is not carried out.
func (a *Agent) omit(step undoStep, why error) (left []leftEntry, _ error) {
	if step.run != nil {
		return nil, why
	}
	for _, operation := range step.operations {
		left = append(left, a.leave(operation, why))
	}
	return left, nil
}

func (a *Agent) leave(operation update.Operation, why error) leftEntry {
	return leftEntry{a.journal.Target, operation.Kind, operation.Name, shorten(why.Error(), maxLeftWhy)}
}

// undoGroup carries out the operations of one executor, each by itself, so that one that fails does not hold the
// others. It returns those that failed.
func (a *Agent) undoGroup(ctx context.Context, group []update.Operation) (left []leftEntry) {
	timeout := undoTimeout
	if group[0].Kind == update.ChangeOS {
		timeout = operationTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, operation := range group {
		if err := a.undoOperation(limited, operation); err != nil {
			left = append(left, a.leave(operation, err))
		}
	}
	return left
}

// undoOperation carries out one operation of an undo, with a limit of time of its own.
func (a *Agent) undoOperation(ctx context.Context, operation update.Operation) error {
	if ctx.Err() != nil {
		return errors.New("other entries took all the time of the undo")
	}
	if operation.Kind != update.ChangeOS && operation.Kind != update.ChangeKernelArguments {
		limited, cancel := context.WithTimeout(ctx, actionTimeout)
		defer cancel()
		ctx = limited
	}
	return a.carryOut(ctx, []update.Operation{operation})
}

// undoFiles returns to the confirmed files. Paths that can't be restored are no error: hostfiles records them.
func (a *Agent) undoFiles() error {
	if _, err := a.Files.Recover(hostfiles.Undo); err != nil {
		return err
	}
	if a.Files.IsUnconfirmed() {
		return a.Files.RollBack()
	}
	return nil
}

// undoActions makes units use the previous configuration again, unless the host is about to boot with it. All actions
// are tried. If the update has not come to its actions, only units that it stopped are restarted. What the reboot of
// the host would not change is added to why the update failed, and is no error.
func (a *Agent) undoActions(ctx context.Context, u *hostUpdate) error {
	if u.plan.Reboots() && a.Clock.BootID() != a.journal.FirstBoot {
		return nil
	}
	left := a.do(ctx, string(update.DaemonReload), a.Executors.Units.DaemonReload)
	var failed error
	for _, action := range u.plan.Undo.Actions {
		hasStopped := slices.Contains(u.plan.Stop, action.Unit) || slices.Contains(u.plan.Stop, hosttree.TemplateOf(action.Unit))
		if !a.journal.HasActed && (action.Type != update.Restart || !hasStopped) {
			continue
		}
		_, err := a.runActions(ctx, []update.Action{action})
		if restartsKubelet([]update.Action{action}) {
			left = errors.Join(left, err)
		} else {
			failed = errors.Join(failed, err)
		}
	}
	failed = errors.Join(failed, a.startUnits(ctx, unitsToStart(u.plan.Undo)))
	if failed != nil && ctx.Err() == nil {
		a.Log.Error("an action failed after the update was undone", "error", failed)
		if _, err := a.enter(undoing, func(j *journal) { j.Failed = j.Failed.with("\nAfter the update was undone: " + failed.Error()) }); err != nil {
			return err
		}
	}
	return left
}
