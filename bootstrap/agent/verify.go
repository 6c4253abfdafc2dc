package agent

import (
	"cmp"
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

// readiness is what the agent saw of the Node while it verifies an update.
type readiness struct {
	update *hostUpdate
	// hasBooted is set when the host is known to have booted what the update configured.
	hasBooted bool
	// isAlive is set when the kubelet has reported after the change.
	isAlive bool
	// isReady is set while the Node is Ready, since an uptime.
	isReady bool
	since   time.Duration
	// isConnected is set when the config server has answered after the change.
	isConnected bool
}

// verify waits until the host runs what the update configured, and its Node is Ready for long enough. If it is not in
// time, the update is undone.
func (a *Agent) verify(ctx context.Context, node Node) (time.Duration, error) {
	a.continued = false
	if boot := a.Clock.BootID(); boot != a.journal.Boot {
		if a.journal.Boots >= maxBoots {
			return a.fail(fmt.Errorf("the host booted %d times before its Node was Ready for long enough", maxBoots+1))
		}
		return a.enter(verifying, func(j *journal) { j.Boot, j.ChangedAt, j.VerifiedSince, j.Boots = boot, 0, a.Clock.Uptime(), j.Boots+1 })
	}
	uptime := a.Clock.Uptime()
	untilSuperseded := forever
	if supersedes(node, a.journal) {
		untilSuperseded = supersedeAfter - (uptime - a.journal.VerifiedSince)
		if untilSuperseded <= 0 || returns(node, a.journal) {
			return a.supersede()
		}
	}
	u := a.ready.update
	if u == nil {
		var err error
		u, err = a.loadUpdate()
		switch {
		case errors.Is(err, errDocument):
			return a.fail(err)
		case err != nil:
			return now, err
		}
		a.ready.update = u
		a.units.seen = nil // units that failed before the update
		a.lookAtUnits(ctx)
	}
	why := a.whyNotReady(ctx, node, u, uptime-a.journal.ChangedAt)
	if why == "" {
		why = a.whyCutOff(ctx, u)
	}
	if !a.ready.hasBooted {
		switch whyNot, err := a.whyNotBooted(ctx, u); {
		case err != nil: // it is asked again
			why = "what the host booted is not known: " + err.Error()
		case whyNot != "" && a.journal.RebootMethod != update.FullReboot:
			return a.rebootFully(a.journal.RebootMethod, whyNot)
		case whyNot != "":
			return a.fail(errors.New(whyNot))
		default:
			a.ready.hasBooted = true
		}
	}
	a.report.set(a.journal.Target, agentv1.Verifying, why)
	a.report.addFullReboot(a.journal)
	if why != "" {
		a.ready.isReady = false
	} else if !a.ready.isReady {
		a.ready.isReady, a.ready.since = true, uptime
	}
	deadline, minReady := u.after.ReadyDeadline()-(uptime-a.journal.VerifiedSince), forever
	if a.ready.isReady {
		minReady = u.after.MinReady() - (uptime - a.ready.since)
	}
	switch {
	case minReady <= 0:
		return a.enter(committing, nil)
	case deadline <= 0:
		if why == "" {
			why = "the Node was not Ready for long enough"
		}
		return a.fail(fmt.Errorf("the update was not complete within %s: %s%s", u.after.ReadyDeadline(), why, a.failingUnits(ctx, why)+u.whatChanged()))
	}
	wait := min(deadline, minReady, untilSuperseded)
	if why != "" {
		wait = min(wait, leaseInterval)
	}
	return wait, nil
}

// whyNotBooted returns what the host should have booted with and has not, or what of Poolboot the update changed, "" if
// there is nothing.
func (a *Agent) whyNotBooted(ctx context.Context, u *hostUpdate) (string, error) {
	changes := func(kind update.OperationKind) bool {
		return slices.ContainsFunc(u.plan.Operations, func(o update.Operation) bool { return o.Kind == kind })
	}
	if changes(update.ChangeKernelArguments) || a.journal.RebootMethod == update.Kexec { // no boot loader chose them
		missing, additional, err := a.Executors.KernelArguments.Differences(argumentsOf(u.after.config))
		switch {
		case err != nil:
			return "", err
		case len(missing) > 0:
			return "the host booted without the kernel arguments " + strings.Join(missing, " "), nil
		case len(additional) > 0:
			return "the host booted with the kernel arguments " + strings.Join(additional, " ") + ", which the update removes", nil
		}
	}
	if changes(update.ChangeOS) {
		limited, cancel := context.WithTimeout(ctx, actionTimeout)
		defer cancel()
		_, how, err := a.Executors.OS.Difference(limited, u.after.config.OS)
		if err != nil {
			return "", err
		}
		if how != "" {
			return "the host booted another operating system: " + how, nil
		}
	}
	if found := a.findChanged(ctx); len(found) > 0 {
		return "the host must not be in its pool like this: " + strings.Join(found, "; ") +
			": remove the entry of the configuration that does this, such as a mount, a line of tmpfiles.d, a setting of a unit or another kubelet", nil
	}
	return "", nil
}

// whyNotReady returns why the Node does not count as Ready, "" if it does. A kubelet that ends again and again renews
// the lease with each start, and its Node stays Ready: so systemd is asked, too. Static Pods can be why no API server
// answers.
func (a *Agent) whyNotReady(ctx context.Context, node Node, u *hostUpdate, passed time.Duration) string {
	why := a.whyNotReported(ctx, node, u, passed)
	switch kubelet, err := a.kubeletProblem(ctx); {
	case err != nil:
		return err.Error()
	case kubelet != nil:
		return fmt.Sprintf("%s: %s (on the host, see journalctl -u %s)", kubelet.Unit, kubelet.What, kubelet.Unit)
	}
	return cmp.Or(a.Executors.StaticPods.Failing(ctx, a.expectedStaticPods(u)), why)
}

// expectedStaticPods returns the manifests of static Pods that passed their probes before the update, and that it does
// not remove.
func (a *Agent) expectedStaticPods(u *hostUpdate) []string {
	return without(a.journal.StaticPods, func(manifest string) bool {
		return slices.ContainsFunc(u.plan.Operations, func(o update.Operation) bool {
			return o.Kind == update.ChangePath && o.Name == manifest && o.After.Path == nil
		})
	})
}

// whyNotReported returns why the kubelet does not count as one that reports a Node that is Ready, "" if it does. It
// reads the lease of the Node if the kubelet was not restarted, because that one reports only every few minutes; a
// restarted one reports at once.
func (a *Agent) whyNotReported(ctx context.Context, node Node, u *hostUpdate, passed time.Duration) string {
	if !node.Known {
		return strings.TrimSuffix("the agent can't read its Node from the API server: "+node.Problem, ": ")
	}
	// A heartbeat has no fractions of a second. One in the second of the change can be before it. Then the lease tells.
	changed := a.changedAt(passed)
	isOther := !node.Heartbeat.Equal(a.journal.Heartbeat)
	canBeNew := (isOther || !u.plan.Reboots()) && !node.Heartbeat.Before(changed.Truncate(time.Second))
	a.ready.isAlive = a.ready.isAlive || isOther && !node.Heartbeat.Before(changed)
	if !a.ready.isAlive && (canBeNew || !restartsKubelet(u.plan.Actions)) {
		renewed, err := a.Cluster.Renewed(ctx)
		if err != nil {
			return fmt.Sprintf("the lease of the Node can't be read: %v", err)
		}
		a.ready.isAlive = renewed.After(changed)
	}
	switch {
	case !a.ready.isAlive:
		return "the kubelet has not reported to the API server since the host was changed"
	case !node.Ready:
		return "the Node is not Ready: " + node.ReadyMessage
	}
	return ""
}

// changesNetwork reports whether an update changes a file of a program that configures the network.
func (u *hostUpdate) changesNetwork() bool {
	return slices.ContainsFunc(u.plan.Operations, func(o update.Operation) bool {
		return o.Kind == update.ChangePath && (strings.HasPrefix(o.Name, "/etc/systemd/network/") || strings.HasPrefix(o.Name, "/etc/NetworkManager/"))
	})
}

// whyCutOff returns why the config server can't be reached after a change of the network, "" if it can. A host without
// it would never get another network, also if its kubelet reaches the API server.
func (a *Agent) whyCutOff(ctx context.Context, u *hostUpdate) string {
	if a.ready.isConnected || !u.changesNetwork() {
		return ""
	}
	limited, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	if _, err := a.Source.Assignment(limited); err != nil && !errors.Is(err, ErrNotAccepted) && !errors.Is(err, ErrRefused) {
		return "the config server can't be reached since the network was changed: " + err.Error()
	}
	a.ready.isConnected = true
	return ""
}

// changedAt returns when the host was changed, as the clock counts now. The change is as long ago as the uptime says:
// the time of day can have jumped since.
func (a *Agent) changedAt(passed time.Duration) time.Time { return a.Clock.Now().Add(-passed) }

// restartsKubelet reports whether a restart of the kubelet is among actions, or a reboot.
func restartsKubelet(actions []update.Action) bool {
	return slices.ContainsFunc(actions, func(action update.Action) bool {
		return action.Type == update.Reboot || action.Type == update.Restart && action.Unit == ignition.KubeletUnit
	})
}
