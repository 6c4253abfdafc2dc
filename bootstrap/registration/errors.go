package registration

import (
	"fmt"
	"strings"
)

// ConflictError is a label or taint that two sources want to have different values.
type ConflictError struct {
	// Key is the label's key, or the taint's key and effect as <key>:<effect>.
	Key string

	// Sources are the two fields that disagree, each with the value it holds.
	Sources []string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s has different values in %s: make them agree or keep one", e.Key, strings.Join(e.Sources, " and "))
}

// InvalidError is a value that no Node can have.
type InvalidError struct {
	// Source is the field that holds the value.
	Source string

	// Problem says what is wrong with it.
	Problem string
}

func (e *InvalidError) Error() string { return e.Source + ": " + e.Problem }

// OutsidePoolError is a set of labels that would not put the Node in the pool that was decided for its Machine.
type OutsidePoolError struct {
	// Role is the role of the pool that was decided.
	Role string

	// Why says where the labels would put the Node.
	Why string

	// Cure says which labels to change.
	Cure string
}

func (e *OutsidePoolError) Error() string {
	return fmt.Sprintf("the Node's labels don't put it in the pool %q: %s; %s", e.Role, e.Why, e.Cure)
}
