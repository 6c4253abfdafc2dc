package rollout

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Hold is why no host of a pool begins an update now, apart from the pool's exceptions for single hosts.
type Hold struct {
	// Why has the reason and the remedy, or is "" if hosts can begin updates.
	Why string
	// Reason is that of the conditions Updated and Updating of the pool, or "" for the maintenance window.
	Reason string
	// Wait is the time after which to look again, because the maintenance window opens or an exception ends, or 0.
	Wait time.Duration

	// untilOpen is the part of Wait that is about the window.
	untilOpen time.Duration
	// exceptions are those that have not expired, by their Nodes.
	exceptions map[string]exception
}

// exception is an exception that still counts for some time.
type exception struct {
	*poolv1.UpdateException
	left time.Duration
}

// HostHold is why a host of a pool begins no update now.
type HostHold struct {
	// Why has the reasons and the remedies, or is "" if the host can begin an update.
	Why string
	// IsSkipped is true if the pool skips the host.
	IsSkipped bool
	// Wait is the time after which to look again, or 0.
	Wait time.Duration
	// byPool is the part of Why that is about all hosts of the pool but those that ignore it.
	byPool string
}

// Of returns the hold of the host with a Node. What holds the pool holds a skipped host too. A host that ignores the
// maintenance window, also one that can't be read, is held by everything else.
func (h Hold) Of(node string) HostHold {
	of := HostHold{Why: h.Why, Wait: h.untilOpen, byPool: h.Why}
	e, has := h.exceptions[node]
	switch {
	case !has:
		return of
	case e.Action == poolv1.ExceptionSkip:
		of.IsSkipped, of.Why = true, "it is "+DescribeException(e.UpdateException)+" (spec.updates.exceptions of the pool)"
		if h.Why != "" {
			of.Why += ". After that, " + h.Why
		}
	case e.Action == poolv1.ExceptionIgnoreWindow && h.Reason == "":
		of.Why, of.byPool = "", ""
	}
	of.Wait = sooner(of.Wait, e.left)
	return of
}

// sooner returns the shorter one of two times after which to look again, at most MaxWait, where 0 means that it need
// not be.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		a = b
	}
	return min(a, MaxWait)
}

// MaxWait limits the time until a pool with a closed window or exceptions is looked at again, because clocks can be
// set.
const MaxWait = time.Hour

// Command returns a command of kubectl poolboot rollout for a pool. In a file, the pool can have no namespace.
func Command(name string, p *poolv1.MachineConfigPool) string {
	command := fmt.Sprintf("kubectl poolboot rollout %s %s", name, p.Name)
	if p.Namespace != "" {
		command += " -n " + p.Namespace
	}
	return command
}

// HoldOf returns why no host of a pool begins an update, as far as the pool itself says: a pause, a missing approval,
// or the maintenance window. A user can store a window that can't be read while the webhook does not run.
func HoldOf(p *poolv1.MachineConfigPool, now time.Time) Hold {
	hold := holdOfPool(p, now)
	hold.untilOpen = hold.Wait
	for i := range p.Spec.Updates.Exceptions {
		e := &p.Spec.Updates.Exceptions[i]
		left := exceptionLeft(e, now)
		if left <= 0 {
			continue
		}
		if hold.exceptions == nil {
			hold.exceptions = map[string]exception{}
		}
		hold.exceptions[e.Node] = exception{e, left}
		hold.Wait = sooner(hold.Wait, left)
	}
	return hold
}

// holdOfPool returns the hold without the exceptions.
func holdOfPool(p *poolv1.MachineConfigPool, now time.Time) Hold {
	if p.Spec.IsPaused() {
		return Hold{Reason: poolv1.RolloutPausedReason,
			Why: "the pool is paused: run " + Command("resume", p) + " to hand out " + cmp.Or(p.Spec.ConfigurationName, "what it renders") + ". Until then, its hosts keep what they run"}
	}
	if why := notApproved(p); why != "" {
		return Hold{Reason: poolv1.ApprovalPendingReason, Why: why}
	}
	window, errs := ParseWindow(p.Spec.Updates.MaintenanceWindow, field.NewPath("spec", "updates", "maintenanceWindow"))
	if len(errs) > 0 {
		return Hold{Why: fmt.Sprintf("the maintenance window of MachineConfigPool %s can't be read: %s", p.Name, errs.ToAggregate())}
	}
	opens := window.Opens(now)
	if !opens.After(now) {
		return Hold{}
	}
	return Hold{
		Why:  fmt.Sprintf("the maintenance window of MachineConfigPool %s opens at %s", p.Name, opens.UTC().Format(time.RFC3339)),
		Wait: min(opens.Sub(now), MaxWait),
	}
}

// notApproved returns why what a pool hands out is not approved, or "". An approval of an earlier or a later rendered
// config approves nothing: whoever approved it has not seen this one.
func notApproved(p *poolv1.MachineConfigPool) string {
	name, approved := p.Status.Configuration.Name, p.Annotations[poolv1.ApprovedConfigurationAnnotation]
	if p.Spec.Updates.Approval != poolv1.ApprovalManual || name == "" || approved == name {
		return ""
	}
	what := "is not approved"
	if approved != "" {
		what += ", because the annotation " + poolv1.ApprovedConfigurationAnnotation + " names " + Clean(approved, 253) + ", which the pool does not hand out"
	}
	return fmt.Sprintf("%s %s (spec.updates.approval of MachineConfigPool %s is Manual): check it, and run %s --configuration %s", name, what, p.Name, Command("approve", p), name)
}
