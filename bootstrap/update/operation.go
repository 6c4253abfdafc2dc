package update

import (
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// OperationKind is what an operation changes.
type OperationKind string

// Kinds of operations.
const (
	// ChangePath writes or removes a file, directory or link. Units, drop-ins, masks, presets and SSH keys are files
	// and links, too. Names are those of hosttree.New. These operations are neighbors, to be run in one transaction.
	ChangePath OperationKind = "Path"
	// ChangeEnablement enables or disables a unit, or applies the presets to it.
	ChangeEnablement OperationKind = "Enablement"
	// ChangeUser creates, changes or removes a user, but not its SSH keys.
	ChangeUser OperationKind = "User"
	// ChangeGroup creates, changes or removes a group.
	ChangeGroup OperationKind = "Group"
	// ChangeKernelArguments removes the arguments of the state before and appends those of the state after.
	ChangeKernelArguments OperationKind = "KernelArguments"
	// ChangeOS changes to another image, kernel or list of extensions.
	ChangeOS OperationKind = "OS"
)

// Operation is one change of a host, described by the states before and after it. It can be repeated: if the state
// after it is there, there is nothing to do. With the states exchanged it undoes itself.
//
// States contain secrets: contents of files and password hashes. String does not show them.
type Operation struct {
	Kind OperationKind `json:"kind"`
	// Name is the path, or the name of the unit, user or group.
	Name string `json:"name,omitempty"`
	// Before and After are the states, of which only the field of the kind is set.
	Before State `json:"before,omitzero"`
	After  State `json:"after,omitzero"`
}

// String returns the operation for logs, without contents and passwords.
func (o Operation) String() string {
	return strings.TrimSpace(string(o.Kind)+" "+o.Name) + ": " + o.Before.String() + " -> " + o.After.String()
}

// State is the state of what an operation changes. In a state of ChangePath, ChangeUser or ChangeGroup without a value,
// the pool does not configure the path, user or group: it is what it was before Poolboot changed it, or does not exist.
// A directory that Poolboot created stays while something is in it, with owner root and mode 0755, as do the parents of
// what a host writes. A user that Poolboot created is deleted without its files.
type State struct {
	Path            *hosttree.Entry    `json:"path,omitempty"`
	Enablement      Enablement         `json:"enablement,omitempty"`
	User            *types.PasswdUser  `json:"user,omitempty"`
	Group           *types.PasswdGroup `json:"group,omitempty"`
	KernelArguments []string           `json:"kernelArguments,omitempty"`
	OS              *OperatingSystem   `json:"os,omitempty"`
}

// String returns the type of a path or whether a unit is enabled. Of other states it returns only whether there is one,
// because they can be secret or long.
func (s State) String() string {
	switch {
	case s.Path != nil:
		return string(s.Path.Type)
	case s.Enablement != "":
		return string(s.Enablement)
	case s.User != nil, s.Group != nil, s.OS != nil, len(s.KernelArguments) > 0:
		return "configured"
	}
	return "not configured"
}

// Enablement is whether a unit is enabled.
type Enablement string

// Enablements of units.
const (
	Enabled  Enablement = "Enabled"
	Disabled Enablement = "Disabled"
	// Preset leaves it to the presets of the operating system.
	Preset Enablement = "Preset"
)

// Undo returns the operations that undo operations, in their order.
func Undo(operations []Operation) []Operation {
	undo := slices.Clone(operations)
	slices.Reverse(undo)
	for i := range undo {
		undo[i].Before, undo[i].After = undo[i].After, undo[i].Before
	}
	if first := slices.IndexFunc(undo, isOfPath); first >= 0 {
		last := len(undo)
		for last > first && !isOfPath(undo[last-1]) {
			last--
		}
		slices.SortStableFunc(undo[first:last], compareHardLinks)
	}
	return undo
}

func isOfPath(o Operation) bool { return o.Kind == ChangePath }

// compareHardLinks sorts operations that put hard links after the others, which write what they lead to.
func compareHardLinks(a, b Operation) int {
	rank := func(o Operation) int {
		if o.After.Path != nil && o.After.Path.Type == hosttree.HardLink {
			return 1
		}
		return 0
	}
	return rank(a) - rank(b)
}
