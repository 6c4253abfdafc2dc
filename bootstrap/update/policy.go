package update

import (
	"path"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Policy decides what a host does after changes. Every change that it does not cover reboots the host.
type Policy struct {
	// Paths are the rules for files, directories and links, by path. A rule for a directory is for everything in it,
	// too. The rule with the longest path applies.
	Paths map[string]Rule `json:"paths"`
	// Units are the rules for units, by name.
	Units map[string]Rule `json:"units"`
	// SSHKeys is the rule for SSH keys and password hashes of users.
	SSHKeys Rule `json:"sshKeys"`
	// KeepsDisks means that other disks than those of the host are no obstacle: it keeps its own.
	KeepsDisks bool `json:"keepsDisks,omitempty"`
}

// Rule has the actions after a change.
type Rule struct {
	Actions []Action `json:"actions"`
	// Reason is where the actions come from.
	Reason string `json:"reason"`
}

// crioUnit is the container runtime of OpenShift.
const crioUnit = "crio.service"

// DefaultPolicy returns the policy without any policy of a pool: the defaults of OpenShift that make sense on any host,
// and those for files that Poolboot writes. OpenShift drains for registries.conf only if running Pods could get other
// images; this policy always does. Hosts skip actions for units that they don't have, such as that of CRI-O.
func DefaultPolicy() Policy {
	restartKubelet := Action{Type: Restart, Unit: ignition.KubeletUnit, IfExists: true}
	reloadCRIO := Action{Type: Reload, Unit: crioUnit, IfExists: true}
	paths := map[string][]Action{
		ignition.MachineConfigPath:             {{Type: None}},
		"/var/lib/kubelet/config.json":         {{Type: None}},
		"/etc/kubernetes/credential-providers": {restartKubelet},
		ignition.WorkerKubeletPath:             {restartKubelet},
		ignition.PoolKubeletPath:               {restartKubelet},
		ignition.WorkerReservedPath:            {restartKubelet},
		ignition.PoolReservedPath:              {restartKubelet},
		ignition.ReservedScriptPath:            {restartKubelet},
		"/etc/containers/policy.json":          {reloadCRIO},
		"/etc/containers/registries.d":         {reloadCRIO},
		"/etc/containers/registries.conf":      {{Type: Drain}, reloadCRIO},
		"/etc/containers/registries.conf.d":    {{Type: Drain}, reloadCRIO},
		"/etc/containerd/certs.d":              {{Type: None}}, // containerd reads it for each image that it pulls
		"/etc/crio/policies":                   {reloadCRIO},
	}
	policy := Policy{Paths: map[string]Rule{}, Units: map[string]Rule{}, SSHKeys: Rule{Actions: []Action{{Type: None}}, Reason: "the default for SSH keys and passwords"}}
	for name, actions := range paths {
		policy.Paths[name] = Rule{Actions: actions, Reason: "the default for " + name}
	}
	// Poolboot writes the unit, and another version of Poolboot can write it in another way.
	policy.Units[ignition.KubeletUnit] = Rule{Actions: []Action{{Type: DaemonReload}, restartKubelet}, Reason: "the default for " + ignition.KubeletUnit}
	return policy
}

// uncovered is the rule for changes without a policy.
func uncovered(reason string) Rule { return Rule{Actions: []Action{{Type: Reboot}}, Reason: reason} }

// ofPath returns the rule for a file, directory or link: that of the longest path that is or contains it.
func (p *Policy) ofPath(name string) Rule {
	for parent := path.Clean(name); ; parent = path.Dir(parent) {
		if rule, ok := p.Paths[parent]; ok {
			return rule
		}
		if parent == "/" {
			return uncovered(noPolicy)
		}
	}
}

// ofUnit returns the rule for a unit.
func (p *Policy) ofUnit(name string) Rule {
	if rule, ok := p.Units[name]; ok {
		return rule
	}
	return uncovered(noPolicy)
}
