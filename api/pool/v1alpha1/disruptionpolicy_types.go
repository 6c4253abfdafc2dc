package v1alpha1

// ActionType is what a host does after a part of its configuration changed.
//
// +kubebuilder:validation:Enum=None;DaemonReload;Reload;Restart;Drain;Reboot
type ActionType string

// Types of actions, as OpenShift names them.
const (
	// ActionNone needs nothing: programs notice the change themselves.
	ActionNone ActionType = "None"
	// ActionDaemonReload has systemd read its units again.
	ActionDaemonReload ActionType = "DaemonReload"
	// ActionReload reloads a unit.
	ActionReload ActionType = "Reload"
	// ActionRestart restarts a unit.
	ActionRestart ActionType = "Restart"
	// ActionDrain cordons and drains the Node before the change.
	ActionDrain ActionType = "Drain"
	// ActionReboot drains the Node and reboots the host. It is the action of every change that no policy covers.
	ActionReboot ActionType = "Reboot"
)

// NeedsUnit reports whether actions of this type are about a unit.
func (t ActionType) NeedsUnit() bool { return t == ActionReload || t == ActionRestart }

// DisruptionAction is one thing that a host does after a part of its configuration changed.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['Reload', 'Restart'] || !has(self.unit)",message="only Reload and Restart have a unit: leave it out",fieldPath=".unit",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!(self.type in ['Reload', 'Restart']) || has(self.unit)",message="Reload and Restart need the name of the unit, such as crio.service",fieldPath=".unit",reason=FieldValueRequired
type DisruptionAction struct {
	// type is what the host does: None needs nothing, DaemonReload has systemd read its units again, Reload and Restart
	// reload or restart a unit, Drain cordons and drains the Node before the change, and Reboot drains the Node and
	// reboots the host. None and Reboot are the only action of their list.
	// +required
	Type ActionType `json:"type,omitempty"`

	// unit is the systemd unit that Reload and Restart are about, such as crio.service.
	// +optional
	Unit UnitName `json:"unit,omitempty"`
}

// UnitName is the name of a systemd unit with its type, such as crio.service.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=255
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9:._@\\\\\\\\-]+[.](service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$')",message="it must be the name of a systemd unit with its type, such as crio.service"
type UnitName string

// DisruptionActions are the actions after a change, in the order in which the host runs them.
//
// +listType=atomic
// +kubebuilder:validation:MinItems=1
// +kubebuilder:validation:MaxItems=10
// +kubebuilder:validation:XValidation:rule="size(self) == 1 || !self.exists(action, action.type in ['None', 'Reboot'])",message="None and Reboot must be the only action: remove the others, or None or Reboot"
type DisruptionActions []DisruptionAction

// PathDisruptionPolicy has the actions for changes of files, directories and links.
type PathDisruptionPolicy struct {
	// path is the absolute path of a file, directory or link, or of a directory that contains them. The policy with the
	// longest matching path applies.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self == '/' || self.matches('^(/[^/]+)+$') && !self.matches('/[.][.]?(/|$)')",message="it must be an absolute path without a slash at its end, and without empty parts, '.' or '..'"
	Path string `json:"path,omitempty"`

	// actions are what a host does after the change, in this order.
	// +required
	Actions DisruptionActions `json:"actions,omitempty"`
}

// UnitDisruptionPolicy has the actions for changes of a systemd unit.
type UnitDisruptionPolicy struct {
	// name is the name of the unit, such as chronyd.service. Its drop-ins, its mask and whether it is enabled are parts
	// of the unit.
	// +required
	Name UnitName `json:"name,omitempty"`

	// actions are what a host does after the change, in this order.
	// +required
	Actions DisruptionActions `json:"actions,omitempty"`
}

// SSHKeysDisruptionPolicy has the actions for changes of SSH keys and password hashes of users.
type SSHKeysDisruptionPolicy struct {
	// actions are what a host does after the change, in this order.
	// +required
	Actions DisruptionActions `json:"actions,omitempty"`
}

// DisruptionPolicy maps changes of a pool's configuration to what its running hosts do after them.
//
// +kubebuilder:validation:MinProperties=1
type DisruptionPolicy struct {
	// files are the policies for files, directories and links, by path. If several match, the one with the longest path
	// applies.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=64
	Files []PathDisruptionPolicy `json:"files,omitempty"`

	// units are the policies for systemd units, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Units []UnitDisruptionPolicy `json:"units,omitempty"`

	// sshKeys is the policy for SSH keys and password hashes of users. Defaults to the action None.
	// +optional
	SSHKeys SSHKeysDisruptionPolicy `json:"sshKeys,omitempty,omitzero"`
}
