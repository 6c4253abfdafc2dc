package rollout

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Hold is why no host of a pool begins an update now.
type Hold struct {
	// Why has the reason and the remedy, or is "" if hosts can begin updates.
	Why string
	// Reason is that of the conditions Updated and Updating of the pool, or "" for the maintenance window.
	Reason string
	// Wait is the time after which to look again, if the reason is that the maintenance window is closed.
	Wait time.Duration
}

// MaxWait limits the time until a pool with a closed window is looked at again, because clocks can be set.
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
