package pool

import (
	"fmt"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// PredictUpdate returns what happens to a running host of a pool when it changes from one rendered config to another.
// worker is nil if there is none. isMoved means that the first one is that of another pool: then the flags of the
// kubelet change too, and it restarts. The host is assumed to have every program that can change kernel arguments, the
// operating system and extensions, because the management cluster does not know its programs.
func PredictUpdate(p, worker *poolv1.MachineConfigPool, from, to poolv1.MachineConfigSpec, isMoved bool) (update.Effect, error) {
	before, err := ParseRendered(from)
	if err != nil {
		return "", fmt.Errorf("configuration before: %w", err)
	}
	after, err := ParseRendered(to)
	if err != nil {
		return "", fmt.Errorf("configuration after: %w", err)
	}
	plan := update.New(before, after, UpdatePolicyOf(p, worker), update.AllCapabilities)
	if isMoved && plan.IsPossible() {
		plan.Actions = append(plan.Actions, update.Action{Type: update.Restart, Unit: "kubelet.service"})
	}
	return plan.Effect(), nil
}
