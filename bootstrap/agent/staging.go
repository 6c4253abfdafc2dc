package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

const (
	// firstStaging and lastStaging limit the time between two tries to stage an update. It doubles with each failure.
	firstStaging = 30 * time.Second
	lastStaging  = 30 * time.Minute
	// staleStaging is the time between the first tries, staleTries of them, while the config server sends an earlier
	// assignment: a moment after the Node, it has the next one, too.
	staleStaging = 5 * time.Second
	staleTries   = 3
	// pullTimeout is how long the download of an image by another program may take.
	pullTimeout = 30 * time.Minute
)

// stagingTry is the last try to stage a revision before the host gets it.
type stagingTry struct {
	revision string
	failures int
	// next is the uptime from which it is tried again.
	next time.Duration
}

// stageNext downloads and verifies what the update needs that the host gets next. It returns after which time to call
// it again, if that is before another wait ends. What fails is reported, and tried again.
func (a *Agent) stageNext(ctx context.Context, node Node, wait time.Duration) (time.Duration, error) {
	next, desired := node.Annotations[agentv1.NextAnnotation], node.Annotations[agentv1.DesiredAnnotation]
	if !isRevision(next) || next == a.journal.Current || next == desired {
		a.report.staging = ""
		if isRevision(desired) && a.offered == nil { // also after an update, and after a crash at its end
			return wait, a.store.keepContents(nil)
		}
		return wait, nil
	}
	if a.hasNext(next) {
		a.report.staging = next
		return wait, nil
	}
	if a.staging.revision != next {
		a.staging = stagingTry{revision: next}
	}
	if left := a.staging.next - a.Clock.Uptime(); left > 0 {
		return min(wait, left), nil
	}
	_ = a.publish(ctx, node) // what the host is now does not wait for downloads
	work, done := a.carrying.beginStaging(ctx, node)
	defer done()
	stop := a.reportMeanwhile(ctx, node)
	err := a.stageRevision(work, next)
	stop()
	switch {
	case ctx.Err() != nil:
		return now, ctx.Err()
	case work.Err() != nil: // the host should do something else now
		return now, nil
	case errors.Is(err, assignment.ErrOtherRevision) && a.staging.failures < staleTries: // the config server has the earlier one yet
		a.staging.next = a.Clock.Uptime() + staleStaging
		a.staging.failures++
		return min(wait, staleStaging), nil
	case err != nil:
		a.staging.next = a.Clock.Uptime() + min(lastStaging, firstStaging<<min(a.staging.failures, 10))
		a.staging.failures++
		a.Log.Warn("the next update can't be staged, which is tried again", "revision", next, "after", (a.staging.next - a.Clock.Uptime()).String(), "error", err)
		a.report.staging = next + " " + shorten(problemOf(err), agentv1.MaxReason)
		return min(wait, a.staging.next-a.Clock.Uptime()), nil
	}
	a.report.staging = next
	return wait, nil
}

// meanwhileInterval is the time between two reports of a host that downloads.
const meanwhileInterval = 5 * time.Second

// reportMeanwhile looks at the units of the host, and reports what changes, until stop is called: the caller downloads,
// which can take an hour. It must not change what is reported meanwhile.
func (a *Agent) reportMeanwhile(ctx context.Context, node Node) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticks := time.NewTicker(a.meanwhile)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			a.lookAtUnits(ctx)
			_ = a.publish(ctx, a.carrying.newest(node)) // it is tried again
		}
	})
	return func() {
		cancel()
		reporting.Wait()
	}
}

// stageRevision stages the update to a revision. What the host refuses, it refuses when it should have the revision.
func (a *Agent) stageRevision(ctx context.Context, revision string) error {
	before, err := a.load(a.journal.Current)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	document, assigned, err := a.fetchAssignment(limited, revision)
	if err != nil {
		return err
	}
	isReplaced, err := a.stageProgram(limited, assigned)
	if err != nil {
		return err
	}
	after, err := a.fetchTarget(limited, revision, document, assigned)
	if unreadable := (*unreadableError)(nil); errors.As(err, &unreadable) && isReplaced && !a.current.isAsFound {
		return a.store.putContents(stagedName, []byte(revision)) // the other program can read it
	}
	if err != nil {
		return err
	}
	u, err := a.planUpdate(ctx, before, after)
	if err != nil {
		return err
	}
	if u.isAdoption() { // it is staged once somebody agrees
		a.report.preview, a.previewedAt = a.preview(limited, u), a.Clock.Uptime()
		return a.keepContentsOf(u.after)
	}
	return a.stage(ctx, u)
}

// stageProgram downloads the program that replaces this one before the update, if there is one.
func (a *Agent) stageProgram(ctx context.Context, assigned assignment.Assignment) (isReplaced bool, err error) {
	want := a.offeredProgram(assigned.Agent)
	if want == "" || whyNotReplace(a.version(), assigned.Agent) != "" {
		return false, nil
	}
	contents, err := a.downloadProgram(ctx, assigned.Agent.Version, want)
	if err != nil {
		return true, err
	}
	return true, a.store.putContents(want, contents)
}

// stage downloads and verifies everything that an update needs, and records that it is on the host. It changes nothing
// that the host runs.
func (a *Agent) stage(ctx context.Context, u *hostUpdate) error {
	if u.isRepair() || a.store.isStaged(u.after.revision) {
		return nil
	}
	if err := a.keepContentsOf(u.after); err != nil { // of an update that this one replaces
		return err
	}
	if u.plan.IsPossible() {
		if err := a.stageParts(ctx, u, hosttree.New(u.after.config.Ignition)); err != nil {
			return fmt.Errorf("stage %s: %w", u.after.Config.Name, err)
		}
	}
	return a.store.putContents(stagedName, []byte(u.after.revision))
}

// keepContentsOf deletes what was downloaded and is not part of a target.
func (a *Agent) keepContentsOf(t *target) error {
	kept := map[string]bool{a.offeredProgram(t.Agent): true}
	for _, entry := range hosttree.New(t.config.Ignition) {
		for _, source := range entry.Sources {
			key, err := keyOf(source)
			if err != nil {
				return err
			}
			kept[key] = true
		}
	}
	return a.store.keepContents(kept)
}

// stageParts downloads the contents of files, the operating system and images.
func (a *Agent) stageParts(ctx context.Context, u *hostUpdate, entries hosttree.Tree) error {
	settings := assignment.Staging{}
	if u.after.Staging != nil {
		settings = *u.after.Staging
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	isChanged := map[string]bool{}
	for _, operation := range u.plan.Operations {
		isChanged[operation.Name] = isChanged[operation.Name] || operation.Kind == update.ChangePath
	}
	for _, name := range entries.Paths() {
		if !u.forced && !isChanged[name] {
			continue
		}
		for _, source := range entries[name].Sources {
			fetch := func(resource types.Resource) ([]byte, error) { return a.contents(limited, resource) }
			if _, err := hosttree.Decode(source, fetch); err != nil {
				return fmt.Errorf("file %s: %w", name, err)
			}
		}
	}
	for _, operation := range u.plan.Operations {
		executor, err := a.executor(operation)
		if err != nil {
			return err
		}
		if stager, ok := executor.(Stager); ok {
			if err := a.pull(ctx, stager.StagingDirectory(), func(ctx context.Context) error { return stager.Stage(ctx, operation) }); err != nil {
				return err
			}
		}
	}
	for _, image := range settings.Images {
		err := a.pull(ctx, a.Executors.Images.Directory(), func(ctx context.Context) error { return a.Executors.Images.Pull(ctx, image) })
		if err != nil {
			return fmt.Errorf("spec.updates.staging.prefetch: image %s: %w", image, err)
		}
	}
	return nil
}

// pull runs a program that downloads into a directory, with a limit of its time and before the disk is full.
func (a *Agent) pull(ctx context.Context, directory string, download func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("it did not end within %s", pullTimeout))
	defer cancel()
	return a.store.disk.Guard(limited, directory, download)
}
