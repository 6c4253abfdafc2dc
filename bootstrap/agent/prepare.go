package agent

import (
	"cmp"
	"context"
	"errors"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
)

// evaluate accepts the update to a revision, or reports why not.
func (a *Agent) evaluate(ctx context.Context, node Node, desired string) (accepted bool, err error) {
	if a.offered != nil && a.offered.revision == desired {
		a.report.set(desired, a.offered.state, a.offered.reason)
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	before, err := a.load(a.journal.Current)
	if err != nil {
		return false, err
	}
	document, assigned, err := a.fetchAssignment(limited, desired)
	if err != nil {
		return false, err
	}
	if err := a.replaceProgram(ctx, assigned.Agent); err != nil { // the new program can know more configurations
		return false, err
	}
	after, err := a.fetchTarget(limited, desired, document, assigned)
	if err != nil {
		return false, err
	}
	u, err := a.planUpdate(limited, before, after)
	if err != nil {
		return false, err
	}
	refuse := func(state agentv1.State, reason string) (bool, error) {
		a.offered = &evaluation{desired, state, reason}
		a.Log.Warn("update refused", "revision", desired, "state", state, "reason", shorten(reason, agentv1.MaxReason))
		a.report.set(desired, state, reason)
		return false, nil
	}
	if !u.plan.IsPossible() {
		return refuse(agentv1.Unreconcilable, u.obstacles())
	}
	if why := a.refusal(limited, u); why != "" {
		return refuse(agentv1.Unreconcilable, why)
	}
	work, done := a.carrying.beginStaging(ctx, node)
	defer done()
	staged := a.report.staging
	a.report.staging = desired + " " + agentv1.StagingDownloads
	stop := a.reportMeanwhile(ctx, node)
	err = a.stage(work, u) // nothing is downloaded after the Node is cordoned
	stop()
	a.report.staging = staged
	switch {
	case work.Err() != nil && ctx.Err() == nil: // the host should have another revision now
		return true, nil
	case err != nil:
		return false, err
	}
	var check *hostfiles.CheckError
	switch err := a.check(limited, u); {
	case errors.As(err, &check):
		return refuse(agentv1.Degraded, "update to "+after.Config.Name+": "+check.Error())
	case err != nil:
		return false, err
	}
	if a.asks(u) {
		_, err = a.enter(draining, func(j *journal) { j.Target, j.Drift = desired, u.drift })
		return true, err
	}
	_, err = a.start(ctx, node, u)
	return true, err
}

// drain waits until the manager has drained the Node for this update, or has looked at the control plane.
func (a *Agent) drain(ctx context.Context, node Node) (time.Duration, error) {
	if desired := node.Annotations[agentv1.DesiredAnnotation]; isRevision(desired) && desired != a.journal.Target {
		return a.enter(idle, func(j *journal) { j.Target = "" })
	}
	isDrained := node.Annotations[agentv1.DrainedAnnotation] == a.journal.Target
	if a.report.is(a.journal.Target, agentv1.Draining) && !isDrained {
		return forever, nil
	}
	u, err := a.loadUpdate()
	if errors.Is(err, errDocument) || err == nil && !a.asks(u) {
		return a.enter(idle, func(j *journal) { j.Target = "" }) // what was planned is lost: evaluate it again
	}
	if err != nil {
		return now, err
	}
	a.report.setUpdate(u, agentv1.Draining)
	if !isDrained {
		return forever, nil
	}
	return a.start(ctx, node, u)
}

// start records that the host changes from now on. An update that waited was reported before. Another one is reported
// with this, and begins only if the host should still have it.
func (a *Agent) start(ctx context.Context, node Node, u *hostUpdate) (time.Duration, error) {
	before := a.report
	a.report.setUpdate(u, agentv1.Applying)
	if u.isRepair() || a.asks(u) {
		_ = a.publish(ctx, node) // it does not depend on the API server
	} else if err := a.accept(ctx, node, u.after.revision); err != nil {
		a.report = before
		return now, err
	}
	var filesLeft []string
	for _, entry := range a.Files.LeftOver() {
		filesLeft = append(filesLeft, entry.Path)
	}
	found, staticPods := a.runCheck(ctx), a.Executors.StaticPods.Passing(ctx)
	return a.enter(applying, func(j *journal) {
		*j = journal{
			Phase: applying, Current: j.Current, Disks: j.Disks, Target: u.after.revision, Drift: u.drift, Found: found, StaticPods: staticPods,
			FirstBoot: a.Clock.BootID(), BegunAt: a.Clock.Now(), Boot: a.Clock.BootID(), Heartbeat: node.Heartbeat,
			Failed: j.Failed, LeftOver: j.LeftOver, Retries: j.Retries, FilesLeft: filesLeft, SingleKeysFile: j.SingleKeysFile, RefusedProgram: j.RefusedProgram,
		}
	})
}

// loadUpdate returns the update in progress.
func (a *Agent) loadUpdate() (*hostUpdate, error) {
	before, err := a.load(a.journal.Current)
	if err != nil {
		return nil, err
	}
	after, err := a.load(a.journal.Target)
	if err != nil {
		return nil, err
	}
	if before.revision == after.revision {
		return newRepair(after, a.journal.Drift, a.Capabilities), nil
	}
	boot := cmp.Or(a.journal.FirstBoot, a.Clock.BootID()) // a plan stays the same after the reboot
	return newUpdate(before, after, boot, a.journal.Drift, a.Capabilities), nil
}
