package pool

import (
	"fmt"
	"strings"
)

// ConflictError says that labels belong to several custom pools: a Node can be in one only.
type ConflictError struct {
	// Roles are the pools' roles, in order.
	Roles []string
}

// Error names the pools and the cure.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("the labels belong to the pools %s, and a Node can be in one custom pool only: "+
		"remove the labels of all but one", strings.Join(e.Roles, " and "))
}

// NotFoundError says that a cluster has no pool of a role.
type NotFoundError struct {
	// Role is the role that was looked for.
	Role string
	// Cure is what helps the host that is to boot into the pool; empty when it is about no host.
	Cure string
}

// Error names the role and the cure.
func (e *NotFoundError) Error() string {
	cure := e.Cure
	if cure == "" {
		cure = "create it, or correct the role"
	}
	return fmt.Sprintf("the Cluster has no MachineConfigPool of role %q: %s", e.Role, cure)
}

// UnselectedError says that labels of a Machine ask for a custom pool that does not exist, or does not select them.
type UnselectedError struct {
	// Labels are the role labels that no pool selects, as key=value, in order.
	Labels []string
}

// Error names the labels and the cures.
func (e *UnselectedError) Error() string {
	return fmt.Sprintf("no MachineConfigPool selects the label %s of the Machine, and it does not boot as worker instead: make that pool, "+
		"or correct the labels (those of the MachineDeployment); or, if the label is not to name a pool, set spec.poolRole: worker in the PoolbootConfig and its template",
		strings.Join(e.Labels, " or "))
}

// DuplicateError says that several pools of a cluster have one role.
type DuplicateError struct {
	// Role is the role that they share.
	Role string
	// Pools are the pools' names, in order.
	Pools []string
}

// Error names the pools and the cure.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("the MachineConfigPools %s all have the role %q: delete all but one",
		strings.Join(e.Pools, " and "), e.Role)
}

// NotRegistrableError says that no labels can be derived from a pool that would put a Node in it.
type NotRegistrableError struct {
	// Pool is the pool's name.
	Pool string
	// Path is the field that is to blame, for example spec.nodeSelector.matchExpressions[0].
	Path string
	// Why says what is wrong with it, and what would be right.
	Why string
}

// Error names the pool, the field and the cure.
func (e *NotRegistrableError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q: %s: %s", e.Pool, e.Path, e.Why)
}

// SelectorError says that a pool's selector is malformed.
type SelectorError struct {
	// Pool is the pool's name.
	Pool string
	// Path is the selector's field.
	Path string
	// Err is what is wrong with it.
	Err error
}

// Error names the pool and the field.
func (e *SelectorError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q: %s: %v", e.Pool, e.Path, e.Err)
}

// Unwrap returns what is wrong with the selector.
func (e *SelectorError) Unwrap() error { return e.Err }

// ControlPlaneError says that the labels of a Machine are those of a control plane, which no pool has a hold on.
type ControlPlaneError struct {
	// Unsupported are the roles of the custom pools that the labels ask for, in order.
	Unsupported []string
}

// Error names the pools that were asked for and the cure.
func (e *ControlPlaneError) Error() string {
	asked := ""
	if len(e.Unsupported) > 0 {
		asked = " (the labels also ask for " + strings.Join(e.Unsupported, " and ") + ", which a control plane can't be in)"
	}
	return "the labels are those of a control plane, which is in no pool" + asked + ": remove the control-plane label"
}
