package pool

import (
	"fmt"
	"strings"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// ConflictError is the error for labels that several custom pools select. A Node can be in one custom pool only.
type ConflictError struct {
	// Roles are the pools' roles, in order.
	Roles []string
}

// Error names the pools and the remedy.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("the labels belong to the pools %s, and a Node can be in one custom pool only: "+
		"remove the labels of all but one", strings.Join(e.Roles, " and "))
}

// Reason returns the reason of the condition that reports the error.
func (e *ConflictError) Reason() string { return bootstrapv1.PoolConflictReason }

// NotFoundError is the error for a role of which the Cluster has no pool.
type NotFoundError struct {
	// Role is the requested role.
	Role string
	// Remedy is what to do about the host that boots into the pool. It is empty if the error is not about a host.
	Remedy string
}

// Error names the role and the remedy.
func (e *NotFoundError) Error() string {
	remedy := e.Remedy
	if remedy == "" {
		remedy = "create it, or correct the role"
	}
	return fmt.Sprintf("the Cluster has no MachineConfigPool of role %q: %s", e.Role, remedy)
}

// Reason returns the reason of the condition that reports the error.
func (e *NotFoundError) Reason() string { return bootstrapv1.PoolNotFoundReason }

// UnselectedError is the error for a Machine with role labels that no pool selects.
type UnselectedError struct {
	// Labels are the role labels that no pool selects, as key=value, in order.
	Labels []string
}

// Error names the labels and the remedies.
func (e *UnselectedError) Error() string {
	return fmt.Sprintf("no MachineConfigPool selects the label %s of the Machine, and it does not boot as worker instead: create that pool, "+
		"or correct the labels of the MachineDeployment; if the label does not name a pool, set spec.poolRole: worker in the PoolbootConfig and its template",
		strings.Join(e.Labels, " or "))
}

// Reason returns the reason of the condition that reports the error.
func (e *UnselectedError) Reason() string { return bootstrapv1.PoolNotFoundReason }

// DuplicateError is the error for several pools of a Cluster with the same role.
type DuplicateError struct {
	// Role is the role of these pools.
	Role string
	// Pools are the pools' names, in order.
	Pools []string
}

// Error names the pools and the remedy.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("the MachineConfigPools %s all have the role %q: delete all but one",
		strings.Join(e.Pools, " and "), e.Role)
}

// Reason returns the reason of the condition that reports the error.
func (e *DuplicateError) Reason() string { return bootstrapv1.PoolConflictReason }

// NotRegistrableError is the error for a pool from which no labels can be derived that put a Node in it.
type NotRegistrableError struct {
	// Pool is the pool's name.
	Pool string
	// Path is the wrong field, for example spec.nodeSelector.matchExpressions[0].
	Path string
	// Why is what is wrong with the field, and how to correct it.
	Why string
}

// Error names the pool, the field and the remedy.
func (e *NotRegistrableError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q: %s: %s", e.Pool, e.Path, e.Why)
}

// Reason returns the reason of the condition that reports the error.
func (e *NotRegistrableError) Reason() string { return bootstrapv1.PoolNotRegistrableReason }

// SelectorError is the error for a malformed selector of a pool.
type SelectorError struct {
	// Pool is the pool's name.
	Pool string
	// Path is the selector's field.
	Path string
	// Err is what is wrong with the selector.
	Err error
}

// Error names the pool and the field.
func (e *SelectorError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q: %s: %v", e.Pool, e.Path, e.Err)
}

// Reason returns the reason of the condition that reports the error.
func (e *SelectorError) Reason() string { return bootstrapv1.PoolNotRegistrableReason }

// Unwrap returns what is wrong with the selector.
func (e *SelectorError) Unwrap() error { return e.Err }

// ControlPlaneError is the error for a Machine that boots with the labels of a control plane.
type ControlPlaneError struct {
	// Unsupported are the roles of the custom pools that select the labels, in order.
	Unsupported []string
}

// Error names the custom pools and the remedy.
func (e *ControlPlaneError) Error() string {
	unsupported := ""
	if len(e.Unsupported) > 0 {
		unsupported = " (the labels also name " + strings.Join(e.Unsupported, " and ") + ", which a control plane can't be in)"
	}
	return "the labels are those of a control plane, whose hosts don't boot into a pool" + unsupported + ": remove the control-plane label"
}

// Reason returns the reason of the condition that reports the error.
func (e *ControlPlaneError) Reason() string { return bootstrapv1.ControlPlaneNotSupportedReason }

// RenderError is the error for a MachineConfig that can't be rendered.
type RenderError struct {
	// MachineConfig is the MachineConfig's name.
	MachineConfig string
	// Path is the field, for example spec.config, or empty for the object itself. Err names the place within the field.
	Path string
	// Err is what is wrong, for example an *ignition.ParseError or an *ignition.GuardError.
	Err error
}

// Error names the MachineConfig, the field and what is wrong.
func (e *RenderError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("MachineConfig %q %v", e.MachineConfig, e.Err)
	}
	return fmt.Sprintf("MachineConfig %q: %s: %v", e.MachineConfig, e.Path, e.Err)
}

// Unwrap returns what is wrong with the MachineConfig.
func (e *RenderError) Unwrap() error { return e.Err }
