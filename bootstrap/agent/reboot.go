package agent

import (
	"cmp"
	"context"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// beginReboot begins the reboot of an update, by the method of the assignment if the change allows it.
func (a *Agent) beginReboot(ctx context.Context, u *hostUpdate) (time.Duration, error) {
	method := u.after.RebootMethod
	started, whyFull := time.Duration(0), u.plan.WhyFullReboot(method)
	if method == update.SoftReboot && whyFull == "" {
		var err error
		if started, err = a.Executors.Rebooter.Started(ctx); err != nil {
			whyFull = err.Error()
		}
	}
	if whyFull != "" {
		return a.rebootFully(method, whyFull)
	}
	return a.enter(rebooting, func(j *journal) {
		j.Boot, j.ChangedAt, j.Reboots, j.RebootMethod, j.Started, j.FullReboot = a.Clock.BootID(), a.Clock.Uptime(), 0, method, started, ""
	})
}

// rebootFully begins a full reboot because another method is not possible, or was not enough.
func (a *Agent) rebootFully(instead update.RebootMethod, why string) (time.Duration, error) {
	a.Log.Warn("the host reboots fully", "instead", instead, "reason", why)
	return a.enter(rebooting, func(j *journal) {
		j.Boot, j.Reboots, j.RebootMethod, j.Started = a.Clock.BootID(), 0, update.FullReboot, 0
		j.ChangedAt = cmp.Or(j.ChangedAt, a.Clock.Uptime()) // a host waits for Metal3 only once
		j.FullReboot = shorten(agentv1.FullRebootInsteadOf+string(instead)+": "+why, maxFullReboot)
	})
}

// maxFullReboot is the maximum size of why a host reboots fully, in bytes: the rest of a report has to fit, too.
const maxFullReboot = 500

// hasRebooted reports whether the host has booted since a boot, or is after the soft reboot of the journal.
func (a *Agent) hasRebooted(ctx context.Context, since string) bool {
	return a.Clock.BootID() != since || a.softRebootedAt(ctx) > 0
}

// softRebootedAt returns the uptime at which the host started again in the soft reboot of the journal, 0 if it did not,
// or that is not known.
func (a *Agent) softRebootedAt(ctx context.Context) time.Duration {
	if a.journal.Started == 0 {
		return 0
	}
	limited, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	started, err := a.Executors.Rebooter.Started(limited)
	if err != nil || started == a.journal.Started {
		return 0
	}
	return started
}
