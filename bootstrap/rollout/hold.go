package rollout

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Hold is why no host of a pool begins an update now.
type Hold struct {
	// Why has the reason and the remedy, or is "" if hosts can begin updates.
	Why string
	// Wait is the time after which to look again, if the reason is that the maintenance window is closed.
	Wait time.Duration
}

// MaxWait limits the time until a pool with a closed window is looked at again, because clocks can be set.
const MaxWait = time.Hour

// HoldOfWindow returns why no host of a pool begins an update. A user can store a window that can't be read while the
// webhook does not run.
func HoldOfWindow(p *poolv1.MachineConfigPool, now time.Time) Hold {
	if p.Spec.IsPaused() {
		return Hold{Why: fmt.Sprintf("the pool is paused: set spec.paused of MachineConfigPool %s to false to update it", p.Name)}
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
