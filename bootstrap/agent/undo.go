package agent

import (
	"context"
	"errors"
	"fmt"
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
func (a *Agent) fail(format string, args ...any) (time.Duration, error) {
	why := shorten(strings.TrimSpace(fmt.Sprintf(format, args...)+a.logDetails(args)), agentv1.MaxReason)
	a.Log.Error("the update failed and is undone", "revision", a.journal.Target, "reason", why)
	return a.beginUndo(failure{Of: a.journal.Target, Why: why})
}

func (a *Agent) beginUndo(why failure) (time.Duration, error) {
	a.unread = 0
	return a.enter(undoing, func(j *journal) { j.Starts, j.Step, j.Failed = 0, 0, &why })
}

// undo returns to the configuration before the update. It always ends: each step is tried, what fails is tried once
// more at the end, and then it is left over, and the host reboots. Each step is recorded when it has ended. One that
// interrupts the agent too often is left over, too.
func (a *Agent) undo(ctx context.Context) (time.Duration, error) {
	mayContinue, err := a.resume()
	if err != nil {
		return now, err
	}
	u, err := a.loadUpdate()
	if err != nil && !errors.Is(err, errDocument) {
		if a.unread++; a.unread < maxUnread {
			return now, err
		}
	}
	a.reportUndo()
	isUnread := func(entry leftEntry) bool { return entry.Of == a.journal.Target && entry.Name == everythingElse }
	if a.journal.Step > 0 && (u == nil) != slices.ContainsFunc(a.journal.LeftOver, isUnread) { // the steps are others than before
		if _, err := a.enter(undoing, func(j *journal) { j.Step, j.LeftOver = 0, without(j.LeftOver, isUnread) }); err != nil {
			return now, err
		}
	}
	steps := a.undoSteps(u, err)
	for a.journal.Step < len(steps) {
		var left []leftEntry
		if step := steps[a.journal.Step]; mayContinue {
			left = step.run(ctx)
		} else {
			left = step.leave(fmt.Sprintf("it interrupted the agent %d times", maxStarts+1))
		}
		if ctx.Err() != nil {
			return now, ctx.Err()
		}
		for _, entry := range left {
			a.Log.Error("an entry could not be restored", "entry", entry.String(), "error", entry.Why)
		}
		if _, err := a.enter(undoing, func(j *journal) { j.Step, j.Starts, j.LeftOver = j.Step+1, 0, withLeft(j.LeftOver, left) }); err != nil {
			return now, err
		}
		mayContinue = true
	}
	hasBooted := a.Clock.BootID() != a.journal.FirstBoot
	isIncomplete := len(a.ownLeftOver()) > 0 || slices.ContainsFunc(a.Files.LeftOver(), func(entry hostfiles.LeftOver) bool {
		return !slices.Contains(a.journal.FilesLeft, entry.Path)
	})
	if isIncomplete && (u == nil || !u.isRepair()) || u != nil && u.plan.Reboots() && hasBooted {
		return a.enter(returning, func(j *journal) { j.Boot = a.Clock.BootID() })
	}
	return a.endUndo()
}

func (a *Agent) reportUndo() {
	text := "the update failed and is being undone: "
	if a.journal.Failed.IsSuperseded {
		text = "the update is being undone: "
	}
	a.report.set(a.journal.Target, agentv1.Applying, text+a.journal.Failed.Why)
}

// endUndo ends the update. What is still left over is tried again with the next check of the host.
func (a *Agent) endUndo() (time.Duration, error) {
	a.CheckSoon()
	a.retriedAt = 0
	hasRebooted := a.journal.Phase == returning
	return a.enter(idle, func(j *journal) {
		// A reboot ended what is not an operation. After a repair, which does not reboot, it is a part of why that
		// failed.
		isOperation := func(entry leftEntry) bool { return entry.Kind != "" }
		failed := *j.Failed
		for _, entry := range without(j.LeftOver, isOperation) {
			if !hasRebooted {
				failed.Why = shorten(failed.Why+"\nAfter the update was undone: "+entry.String()+": "+entry.Why, agentv1.MaxReason)
			}
		}
		j.Failed = &failed
		j.LeftOver = without(j.LeftOver, func(entry leftEntry) bool { return !isOperation(entry) })
		j.Target, j.Drift, j.Step, j.Retries, j.FilesLeft = "", nil, 0, 0, nil
		if j.Failed.IsSuperseded {
			j.Failed = nil
		}
	})
}

// everythingElse is what is left over of an update that can't be read, besides files.
const everythingElse = "everything else"

// undoStep is a step of an undo.
type undoStep struct {
	run func(ctx context.Context) []leftEntry
	// leave returns what is left over if the step is omitted.
	leave func(why string) []leftEntry
}

// undoSteps returns the steps that undo an update, in their order. The update is nil if it can't be read, with an
// error: then only files return, of which hostfiles has records.
func (a *Agent) undoSteps(u *hostUpdate, err error) []undoStep {
	files := a.simpleStep("files", func(context.Context) error { return a.undoFiles() })
	if u == nil {
		unread := a.simpleStep(everythingElse, func(context.Context) error { return err })
		return []undoStep{unread, files}
	}
	steps := []undoStep{a.simpleStep("units that the update added", func(ctx context.Context) error { return a.stopUnits(ctx, u.plan.Undo.Stop) })}
	for _, group := range groupsOf(update.Undo(u.plan.Operations)) {
		steps = append(steps, undoStep{
			run: func(ctx context.Context) []leftEntry { return a.undoGroup(ctx, group) },
			leave: func(why string) (left []leftEntry) {
				for _, operation := range group {
					left = append(left, a.leave(operation, why))
				}
				return left
			},
		})
	}
	return append(steps,
		files, // also if the update changes files only because it is forced
		a.simpleStep("units", func(ctx context.Context) error { return a.undoActions(ctx, u) }),
		a.simpleStep("the second try", func(ctx context.Context) error {
			a.retryFiles()
			if err := a.retryLeftOver(ctx, a.journal.Target); err != nil {
				a.Log.Error("what is left over could not be restored", "error", err)
			}
			return nil
		}),
	)
}

// simpleStep returns a step that is left over as a whole if it fails.
func (a *Agent) simpleStep(what string, run func(ctx context.Context) error) undoStep {
	leave := func(why string) []leftEntry { return []leftEntry{{Of: a.journal.Target, Name: what, Why: why}} }
	return undoStep{
		run: func(ctx context.Context) []leftEntry {
			if err := run(ctx); err != nil {
				return leave(err.Error())
			}
			return nil
		},
		leave: leave,
	}
}

func (a *Agent) leave(operation update.Operation, why string) leftEntry {
	return leftEntry{a.journal.Target, operation.Kind, operation.Name, shorten(why, maxLeftWhy)}
}

// undoGroup carries out the operations of one executor, each by itself, so that one that fails does not hold the
// others. It returns those that failed.
func (a *Agent) undoGroup(ctx context.Context, group []update.Operation) (left []leftEntry) {
	kind := executorOf(group[0].Kind)
	if kind == update.ChangePath { // the operations are what follows from the files
		if err := a.undoFiles(); err != nil {
			return []leftEntry{{Of: a.journal.Target, Name: "files", Why: shorten(err.Error(), maxLeftWhy)}}
		}
	}
	timeout := undoTimeout
	if kind == update.ChangeOS {
		timeout = operationTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, operation := range group {
		if err := a.undoOperation(limited, operation); err != nil {
			left = append(left, a.leave(operation, err.Error()))
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
		a.journal.Failed.Why = shorten(a.journal.Failed.Why+"\nAfter the update was undone: "+failed.Error(), agentv1.MaxReason)
	}
	return left
}
