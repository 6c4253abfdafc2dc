package update

import (
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// OperationKind is what an operation changes.
type OperationKind string

// Kinds of operations.
const (
	// ChangePath writes or removes a file, directory or link. Units, drop-ins and masks are files and links, too.
	ChangePath OperationKind = "Path"
	// ChangeEnablement enables or disables a unit, or applies the presets to it.
	ChangeEnablement OperationKind = "Enablement"
	// ChangeUser creates, changes or removes a user.
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
	Path            *Path              `json:"path,omitempty"`
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

// PathType is the type of a path.
type PathType string

// Types of paths.
const (
	TypeFile      PathType = "File"
	TypeDirectory PathType = "Directory"
	TypeLink      PathType = "Link"
	TypeHardLink  PathType = "HardLink"
	// TypeUnmasked is the file of a unit that must not be masked: a link to /dev/null is removed, everything else
	// stays.
	TypeUnmasked PathType = "Unmasked"
)

// Path is the state of a path. Owners and modes that are not set are those of what was there before Poolboot changed it
// or, if there was nothing, root, 0644 for files and 0755 for directories.
type Path struct {
	Type  PathType        `json:"type"`
	Mode  *int            `json:"mode,omitempty"`
	User  types.NodeUser  `json:"user,omitzero"`
	Group types.NodeGroup `json:"group,omitzero"`
	// Contents are those of a file. If they are nil, the file has the contents that it had before Poolboot changed it,
	// or is empty.
	Contents *Contents `json:"contents,omitempty"`
	// Target is that of a link.
	Target string `json:"target,omitempty"`
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
	return undo
}
