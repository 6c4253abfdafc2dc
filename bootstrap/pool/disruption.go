package pool

import (
	"maps"
	"path"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// UpdatePolicyOf returns the policy of a pool's hosts: that of worker, and that of the pool over it. worker is nil if
// there is none.
func UpdatePolicyOf(p, worker *poolv1.MachineConfigPool) update.Policy {
	if worker == nil {
		return NewUpdatePolicy(p.Spec.Updates.DisruptionPolicy)
	}
	return NewUpdatePolicy(worker.Spec.Updates.DisruptionPolicy, p.Spec.Updates.DisruptionPolicy)
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
		if !strings.HasPrefix(name, ignition.OwnDirectory+"/") && slices.ContainsFunc(policy.Files, isIn) && !slices.ContainsFunc(policy.Files, isReplaced) {
			paths = append(paths, name)
		}
	}
	return paths
}
