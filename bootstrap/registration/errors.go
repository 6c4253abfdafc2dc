package registration

import (
	"fmt"
	"strings"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// LabelConflictError reports that two sources set different values for a label or taint.
type LabelConflictError struct {
	// Key is the key of the label, or the key and effect of the taint as <key>:<effect>.
	Key string

	// Sources are the two fields that disagree, each with its value.
	Sources []string
}

func (e *LabelConflictError) Error() string {
	return fmt.Sprintf("%s has different values in %s: set the same value in both, or remove one", e.Key, strings.Join(e.Sources, " and "))
}

// Reason returns the reason of the condition that reports the error.
func (e *LabelConflictError) Reason() string { return bootstrapv1.LabelConflictReason }

// InvalidError reports a value that is not valid for a Node.
type InvalidError struct {
	// Source is the field that has the value, or the value itself.
	Source string

	// Problem describes why the value is not valid.
	Problem string
}

func (e *InvalidError) Error() string { return e.Source + ": " + e.Problem }

// OutsidePoolError reports labels that do not put the Node in the pool that was decided for it.
type OutsidePoolError struct {
	// Role is the role of the decided pool.
	Role string

	// Why describes where the labels put the Node, or which requirement of the pool they do not meet.
	Why string

	// Remedy describes which labels to change.
	Remedy string
}

func (e *OutsidePoolError) Error() string {
	return fmt.Sprintf("the Node's labels don't put it in the pool %q: %s; %s", e.Role, e.Why, e.Remedy)
}

// Reason returns the reason of the condition that reports the error.
func (e *OutsidePoolError) Reason() string { return bootstrapv1.LabelConflictReason }
