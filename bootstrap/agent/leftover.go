package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// leftEntry is an operation that the undo of an update could not carry out.
type leftEntry struct {
	// Of is the revision whose update was undone. Its documents stay, so that the operation can be repeated.
	Of   string               `json:"of"`
	Kind update.OperationKind `json:"kind"`
	Name string               `json:"name,omitempty"`
	Why  string               `json:"why"`
}

// maxLeftWhy is the maximum size of leftEntry.Why in bytes.
const maxLeftWhy = 256

// String returns the entry for people.
func (e leftEntry) String() string { return strings.TrimSpace(string(e.Kind) + " " + e.Name) }

func newLeftEntry(of string, operation update.Operation, why error) leftEntry {
	return leftEntry{of, operation.Kind, operation.Name, shorten(why.Error(), maxLeftWhy)}
}

// withLeft adds an entry. If it was left over before, it replaces the earlier one. Kernel arguments have no name, and
// each update can leave others over.
func withLeft(entries []leftEntry, added leftEntry) []leftEntry {
	return append(without(entries, func(entry leftEntry) bool {
		return added.Kind == entry.Kind && added.Name == entry.Name && (entry.Kind != update.ChangeKernelArguments || added.Of == entry.Of)
	}), added)
}

// keptRevisions returns those whose documents are needed besides those of an update.
func (j *journal) keptRevisions() (revisions []string) {
	for _, entry := range j.LeftOver {
		revisions = append(revisions, entry.Of)
	}
	return revisions
}

// retryFiles tries again to restore what is left over of files.
func (a *Agent) retryFiles() {
	if err := a.Files.Retry(); err != nil {
		a.Log.Error("files that an undo left over could not be restored", "error", err)
	}
}

// retryLeftOver tries again to restore what the undo of a revision left over, apart from files, to what the current
// configuration says. It records what is still left over.
func (a *Agent) retryLeftOver(ctx context.Context, of string) error {
	isOf := func(entry leftEntry) bool { return entry.Of == of }
	if !slices.ContainsFunc(a.journal.LeftOver, isOf) {
		return nil
	}
	before, errLoad := a.load(a.journal.Current)
	after, errTarget := a.load(of)
	if err := errors.Join(errLoad, errTarget); err != nil {
		return err
	}
	var left []leftEntry
	timeLeft := undoTimeout
	u := newUpdate(before, after, "", nil, a.Capabilities)
	operations := u.plan.Operations
	if !u.plan.IsPossible() || u.isAdoption() { // the current configuration can be a later one, and what differed is not known
		operations = update.Operations(before.config, after.config)
	}
	for _, operation := range update.Undo(operations) {
		isLeft := func(entry leftEntry) bool {
			return isOf(entry) && entry.Kind == operation.Kind && entry.Name == operation.Name
		}
		if !slices.ContainsFunc(a.journal.LeftOver, isLeft) {
			continue
		}
		if failed := a.undoOperation(ctx, &timeLeft, undoTimeout, operation); failed != nil {
			left = append(left, newLeftEntry(of, operation, failed))
		}
	}
	_, err := a.enter(a.journal.Phase, func(j *journal) { j.LeftOver = append(without(j.LeftOver, isOf), left...) })
	return err
}

// retryIfLeft tries again what earlier undos left over: files with each check, and the rest after a start and once an
// hour, unless that interrupted the agent too often.
func (a *Agent) retryIfLeft(ctx context.Context) error {
	uptime := a.Clock.Uptime()
	isDue := len(a.journal.LeftOver) > 0 && (a.retriedAt == 0 || uptime-a.retriedAt >= checkInterval)
	if !isDue && len(a.Files.LeftOver()) == 0 {
		a.retryFiles() // it can have slots to remove
		return nil
	}
	if a.journal.Retries >= maxRetries {
		return nil
	}
	if _, err := a.enter(a.journal.Phase, func(j *journal) { j.Retries++ }); err != nil {
		return err
	}
	a.retryFiles()
	var revisions []string
	if isDue {
		revisions = a.journal.keptRevisions()
	}
	slices.Sort(revisions)
	for _, of := range slices.Compact(revisions) {
		if err := a.retryLeftOver(ctx, of); err != nil {
			a.Log.Error("what an undo left over could not be restored", "error", err)
		}
	}
	// An agent that is stopped was not interrupted by this.
	_, err := a.enter(a.journal.Phase, func(j *journal) { j.Retries = 0 })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isDue {
		a.retriedAt = uptime
	}
	return err
}

// leftOverText says what is left over and what to do, "" if there is nothing.
func (a *Agent) leftOverText() string {
	var parts []string
	for _, entry := range a.journal.LeftOver {
		parts = append(parts, entry.String()+": "+entry.Why)
	}
	for _, entry := range a.Files.LeftOver() {
		parts = append(parts, entry.Path+": "+entry.Why)
	}
	if len(parts) == 0 {
		return ""
	}
	return "These entries could not be restored when an update was undone: " + strings.Join(parts, "; ") +
		". Restore them on the host, or replace the host."
}
