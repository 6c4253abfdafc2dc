package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// undoTimeout is how long an undo may take for kernel arguments, and for all operations besides those of the operating
// system and these.
var undoTimeout = 15 * time.Minute

const (
	// maxUnread is how often an undo tries to read what it undoes.
	maxUnread = 3
	// maxRetries is how often a try to restore what an undo left over may interrupt the agent.
	maxRetries = 3
)

// fail begins to undo the update.
func (a *Agent) fail(err error) (time.Duration, error) {
	a.Log.Error("the update failed and is undone", "revision", a.journal.Target, "error", err)
	why := journalCommand.ReplaceAllString(strings.TrimSpace(err.Error()+whereDetailsAre(err)), "$0"+a.sinceBegun())
	return a.beginUndo(failure{Of: a.journal.Target, Why: shorten(why, agentv1.MaxReason)})
}

// journalCommand matches the commands of reasons that show the logs of units.
var journalCommand = regexp.MustCompile(`journalctl( -u [A-Za-z0-9:_.@\\-]+)+`)

// sinceBegun returns the options with which journalctl shows only what was logged during the update: after its undo,
// units log more. It returns none if the time is not known, because the clock was set back or an earlier agent began.
func (a *Agent) sinceBegun() string {
	const format = `2006-01-02 15:04:05 UTC`
	since, until := a.journal.BegunAt.UTC(), a.Clock.Now().UTC().Add(time.Second)
	if since.IsZero() || until.Before(since) {
		return ""
	}
	return fmt.Sprintf(` --since "%s" --until "%s"`, since.Format(format), until.Format(format))
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
	steps, left := a.undoSteps(u), undoTimeout
	for a.journal.Step < len(steps) {
		step, err := steps[a.journal.Step], fmt.Errorf("it interrupted the agent %d times", maxStarts+1)
		switch {
		case mayContinue && step.operation != nil:
			err = a.undoOperation(ctx, &left, operationTimeout, *step.operation)
		case mayContinue:
			err = step.run(ctx)
		}
		if ctx.Err() != nil {
			return now, ctx.Err()
		}
		if err != nil {
			a.Log.Error("a step of the undo failed", "step", step.what, "error", err)
		}
		if _, err := a.enter(undoing, func(j *journal) {
			j.Step, j.Starts, j.UndoErrors = j.Step+1, 0, maps.Clone(j.UndoErrors)
			delete(j.UndoErrors, step.what) // of an earlier try
			switch {
			case err != nil && step.operation != nil:
				j.LeftOver = withLeft(j.LeftOver, newLeftEntry(j.Target, *step.operation, err))
			case err != nil:
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
	hasBooted := a.hasRebooted(ctx, a.journal.FirstBoot)
	isIncomplete := u == nil || len(a.journal.UndoErrors) > 0 || slices.ContainsFunc(a.journal.LeftOver, func(entry leftEntry) bool {
		return entry.Of == a.journal.Target
	}) || slices.ContainsFunc(a.Files.LeftOver(), func(entry hostfiles.LeftOver) bool {
		return !slices.Contains(a.journal.FilesLeft, entry.Path)
	})
	isBack := u != nil && len(u.plan.Operations) == 0 && a.journal.Failed.IsSuperseded // a restart is not undone
	if isIncomplete && (u == nil || !u.isRepair()) || u != nil && u.plan.Reboots() && hasBooted && !isBack {
		return a.enter(returning, func(j *journal) {
			j.Boot, j.Reboots, j.RebootMethod, j.Started = a.Clock.BootID(), 0, update.FullReboot, 0
		})
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
	a.report.setUndo(a.journal.Target, agentv1.Applying, text+a.journal.Failed.Why)
}

// endUndo ends the update. The problems are added to why the update failed. What is still left over is tried again with
// the next check of the host.
func (a *Agent) endUndo(ctx context.Context, problems ...string) (time.Duration, error) {
	if err := a.restoreOwn(ctx); err != nil { // it is found as a difference
		a.Log.Error("Poolboot's own files could not be restored", "error", err)
	}
	a.checkSoon()
	a.retriedAt = 0
	_, err := a.enter(idle, func(j *journal) {
		failed := j.Failed
		for _, problem := range problems {
			failed = failed.with("\nAfter the update was undone: " + problem)
		}
		*j = j.settled(j.Current)
		if !failed.IsSuperseded {
			j.Failed = failed
		}
	})
	a.units.seen = nil // units that failed in the update
	a.lookAtUnits(ctx)
	return now, err
}

// undoStep is a step of an undo: an operation, or something else that it runs.
type undoStep struct {
	what      string
	operation *update.Operation
	run       func(ctx context.Context) error
}

// undoSteps returns the steps that undo an update, in their order. The update is nil if it can't be read: then only
// files return, of which hostfiles has records. Paths that can't be restored are no error: hostfiles records them.
func (a *Agent) undoSteps(u *hostUpdate) []undoStep {
	files := undoStep{what: "files", run: func(context.Context) error { return a.Files.RollBack() }}
	if u == nil {
		return []undoStep{files}
	}
	steps := []undoStep{{what: "units that the update added", run: func(ctx context.Context) error { return a.stopUnits(ctx, u.plan.Undo.Stop) }}}
	hasFiles := false
	for _, operation := range update.Undo(u.plan.Operations) {
		if operation.Kind == update.ChangePath && !hasFiles {
			steps, hasFiles = append(steps, files), true
		}
		if executor, err := a.executor(operation); executor != nil || err != nil {
			steps = append(steps, undoStep{what: operation.String(), operation: &operation})
		}
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

// undoOperation carries out one operation of an undo with a limit of time of its own. One of the operating system may
// take osTimeout, and one of kernel arguments undoTimeout: they come first, and take no time from the others, which
// share what is left.
func (a *Agent) undoOperation(ctx context.Context, left *time.Duration, osTimeout time.Duration, operation update.Operation) error {
	limit := osTimeout
	switch operation.Kind {
	case update.ChangeOS:
	case update.ChangeKernelArguments:
		limit = undoTimeout
	default:
		if *left <= 0 {
			return errors.New("other entries took all the time of the undo")
		}
		limit = min(actionTimeout, *left)
		defer func(began time.Time) { *left -= time.Since(began) }(time.Now())
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return a.carryOut(limited, operation)
}

// undoActions makes units use the previous configuration again, unless the host is about to boot with it. All actions
// are tried. If the update has not come to its actions, only units that it stopped are restarted. What the reboot of
// the host would not change is added to why the update failed, and is no error.
func (a *Agent) undoActions(ctx context.Context, u *hostUpdate) error {
	if u.plan.Reboots() && a.hasRebooted(ctx, a.journal.FirstBoot) {
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
