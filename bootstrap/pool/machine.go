package pool

import (
	"errors"
	"slices"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Reason says on what ground a Machine's pool was decided. It is a reason of the PoolDecided condition.
type Reason string

// Grounds on which a Machine's pool is decided.
const (
	FromHost   Reason = bootstrapv1.PoolRetainedByHostReason
	FromSpec   Reason = bootstrapv1.PoolFromSpecReason
	FromLabels Reason = bootstrapv1.PoolFromLabelsReason
	Defaulted  Reason = bootstrapv1.PoolDefaultedReason
)

// ForMachine says which pool a Machine that has not booted belongs to: specPool if it is set, else what Decide makes of
// the Machine's labels, else worker. The pool must exist (*NotFoundError, *DuplicateError) and its labels must be derivable
// (*NotRegistrableError). Labels of several custom pools are a *ConflictError, those of a control plane a *ControlPlaneError.
func ForMachine(specPool string, machineLabels map[string]string, pools []poolv1.MachineConfigPool) (string, Reason, error) {
	role, why := specPool, FromSpec
	if role == "" {
		decision, err := Decide(machineLabels, pools)
		if err != nil {
			return "", "", err
		}
		if decision.ControlPlane {
			return "", "", &ControlPlaneError{Unsupported: decision.Unsupported}
		}
		if role, why = decision.Role, FromLabels; role == "" {
			role, why = poolv1.RoleWorker, Defaulted
		}
	}
	return usable(role, why, pools)
}

// ForMachineOnHost is ForMachine once the host of a Machine with poolRetention: Host is known: the pool that the host keeps
// comes first. One that does not exist any more keeps nothing; the Reason tells.
func ForMachineOnHost(kept, specPool string, machineLabels map[string]string, pools []poolv1.MachineConfigPool) (string, Reason, error) {
	if kept != "" {
		role, why, err := usable(kept, FromHost, pools)
		if _, gone := errors.AsType[*NotFoundError](err); !gone {
			return role, why, err
		}
	}
	return ForMachine(specPool, machineLabels, pools)
}

// usable returns the role and the reason of a decision for a pool that a Machine can boot into.
func usable(role string, why Reason, pools []poolv1.MachineConfigPool) (string, Reason, error) {
	p, err := OfRole(pools, role)
	if err != nil {
		return "", "", err
	}
	if _, err := Labels(*p); err != nil {
		return "", "", err
	}
	return role, why, nil
}

// OfRole returns the pool of a role: a *NotFoundError when there is none, a *DuplicateError when there are several.
func OfRole(pools []poolv1.MachineConfigPool, role string) (*poolv1.MachineConfigPool, error) {
	var found []*poolv1.MachineConfigPool
	for i := range pools {
		if pools[i].Spec.Role == role {
			found = append(found, &pools[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, &NotFoundError{Role: role}
	case 1:
		return found[0], nil
	}
	duplicate := &DuplicateError{Role: role}
	for _, p := range found {
		duplicate.Pools = append(duplicate.Pools, p.Name)
	}
	slices.Sort(duplicate.Pools)
	return nil, duplicate
}
