package pool

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// UpdatePolicyOf returns the policy of a pool's hosts: that of the pool over that of the pool that it inherits from.
// This parent can be nil.
func UpdatePolicyOf(p, parent *poolv1.MachineConfigPool) update.Policy {
	if parent == nil {
		parent = p
	}
	policy := NewUpdatePolicy(parent.Spec.Updates.DisruptionPolicy, p.Spec.Updates.DisruptionPolicy)
	policy.KeepsDisks = cmp.Or(p.Spec.Updates.DiskPolicy, parent.Spec.Updates.DiskPolicy) == poolv1.DiskNewHostsOnly
	return policy
}

// RebootMethodOf returns how the hosts of a pool reboot.
func RebootMethodOf(p *poolv1.MachineConfigPool) update.RebootMethod {
	if method := p.Spec.Updates.RebootMethod; method != poolv1.RebootFull {
		return update.RebootMethod(method)
	}
	return update.FullReboot
}

// RestartKindOf returns what the hosts of a pool restart because it was requested.
func RestartKindOf(p *poolv1.MachineConfigPool) update.RestartKind {
	switch {
	case !p.Spec.Updates.Restart.IsRequested():
		return update.RestartNothing
	case p.Spec.Updates.Restart.Kind == poolv1.RestartKubelet:
		return update.RestartKubelet
	}
	return update.RestartHost
}

// RestartOf returns what a running host of a pool restarts because it was requested, and the host was not told so yet,
// or has not rebooted yet. isMoved is true for a host that runs the configuration of another pool: what was requested
// for all hosts of the pool is not for it.
func RestartOf(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, isMoved bool) update.RestartKind {
	required := config.Status.Update.RebootRequired.BootID
	if p.Spec.Updates.RebootsIfRequired() && required != "" && record.RebootRequestOf(config).Boot == required {
		return update.RestartKernel
	}
	if isMoved || config.Status.Update.Restart == p.Spec.Updates.Restart.ID {
		return update.RestartNothing
	}
	return RestartKindOf(p)
}

// NewUpdatePolicy returns the defaults with policies over them. A later policy for the same path or unit, or for SSH
// keys, replaces an earlier one.
func NewUpdatePolicy(policies ...poolv1.DisruptionPolicy) update.Policy {
	result := update.DefaultPolicy()
	rule := func(actions poolv1.DisruptionActions, of string) update.Rule {
		return update.Rule{Actions: UpdateActions(actions), Reason: "disruptionPolicy for " + of}
	}
	for _, policy := range policies {
		for _, file := range policy.Files {
			result.Paths[path.Clean(file.Path)] = rule(file.Actions, file.Path)
		}
		for _, unit := range policy.Units {
			result.Units[string(unit.Name)] = rule(unit.Actions, string(unit.Name))
		}
		if len(policy.SSHKeys.Actions) > 0 {
			result.SSHKeys = rule(policy.SSHKeys.Actions, "SSH keys and passwords")
		}
	}
	return result
}

// UpdateActions returns the actions of a policy.
func UpdateActions(of poolv1.DisruptionActions) []update.Action {
	actions := make([]update.Action, 0, len(of))
	for _, action := range of {
		actions = append(actions, update.Action{Type: update.ActionType(action.Type), Unit: string(action.Unit)})
	}
	return actions
}

// DefaultsBelowPolicy returns the paths of the defaults that apply although a policy has a directory that contains
// them, because their paths are longer. It leaves out the files that no MachineConfig can have.
func DefaultsBelowPolicy(policy poolv1.DisruptionPolicy) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(update.DefaultPolicy().Paths)) {
		isIn := func(p poolv1.PathDisruptionPolicy) bool {
			return strings.HasPrefix(name, strings.TrimSuffix(p.Path, "/")+"/")
		}
		isReplaced := func(p poolv1.PathDisruptionPolicy) bool { return p.Path == name }
		if !ignition.IsOwnFile(name) && slices.ContainsFunc(policy.Files, isIn) && !slices.ContainsFunc(policy.Files, isReplaced) {
			paths = append(paths, name)
		}
	}
	return paths
}

// unitPattern matches the name of a systemd unit. The CRD has the same pattern.
var unitPattern = regexp.MustCompile(`^[a-zA-Z0-9:._@\\-]+\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)

// actionTypes are the valid types of actions.
var actionTypes = []poolv1.ActionType{poolv1.ActionNone, poolv1.ActionDaemonReload, poolv1.ActionReload, poolv1.ActionRestart, poolv1.ActionDrain, poolv1.ActionReboot}

// CheckDisruption validates a policy as the CRD does, for policies that no API server validated.
func CheckDisruption(policy poolv1.DisruptionPolicy, at *field.Path) (errs field.ErrorList) {
	names := map[string]bool{}
	refuseDuplicate := func(name string, at *field.Path) {
		if names[name] {
			errs = append(errs, field.Duplicate(at, name))
		}
		names[name] = true
	}
	for i, file := range policy.Files {
		at := at.Child("files").Index(i)
		if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path {
			errs = append(errs, field.Invalid(at.Child("path"), file.Path, "it must be an absolute path without a slash at its end, and without empty parts, '.' or '..'"))
		}
		refuseDuplicate(file.Path, at.Child("path"))
		errs = append(errs, checkActions(file.Actions, at.Child("actions"))...)
	}
	for i, unit := range policy.Units {
		at := at.Child("units").Index(i)
		errs = append(errs, checkUnit(unit.Name, at.Child("name"))...)
		refuseDuplicate(string(unit.Name), at.Child("name"))
		errs = append(errs, checkActions(unit.Actions, at.Child("actions"))...)
	}
	if len(policy.SSHKeys.Actions) > 0 {
		errs = append(errs, checkActions(policy.SSHKeys.Actions, at.Child("sshKeys", "actions"))...)
	}
	return errs
}

func checkActions(actions poolv1.DisruptionActions, at *field.Path) (errs field.ErrorList) {
	if len(actions) == 0 {
		errs = append(errs, field.Required(at, "name at least one action: None if the host does nothing"))
	}
	isAlone := func(a poolv1.DisruptionAction) bool {
		return a.Type == poolv1.ActionNone || a.Type == poolv1.ActionReboot
	}
	if len(actions) > 1 && slices.ContainsFunc(actions, isAlone) {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "None and Reboot must be the only action: remove the others, or None or Reboot"))
	}
	for i, action := range actions {
		at := at.Index(i)
		switch {
		case !slices.Contains(actionTypes, action.Type):
			errs = append(errs, field.NotSupported(at.Child("type"), action.Type, actionTypes))
		case action.Type.NeedsUnit():
			errs = append(errs, checkUnit(action.Unit, at.Child("unit"))...)
		case action.Unit != "":
			errs = append(errs, field.Forbidden(at.Child("unit"), "only Reload and Restart have a unit: leave it out"))
		}
	}
	return errs
}

func checkUnit(name poolv1.UnitName, at *field.Path) field.ErrorList {
	if unitPattern.MatchString(string(name)) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "it must be the name of a systemd unit with its type, such as crio.service")}
}
