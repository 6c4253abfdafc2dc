package join

import (
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// policyOf returns the disruption policy of a host: that of its pool, and rules for the machine's own part. Users
// cannot configure what these rules are about, so they replace rules of the pool.
func policyOf(p, worker *poolv1.MachineConfigPool) update.Policy {
	policy := pool.UpdatePolicyOf(p, worker)
	rule := func(actions ...update.Action) update.Rule {
		return update.Rule{Actions: actions, Reason: "the default for what Poolboot writes for this machine"}
	}
	restartKubelet := rule(update.Action{Type: update.Restart, Unit: ignition.KubeletUnit, IfExists: true})
	// With kubeadm, the flags of the kubelet come from KubeadmJoinPath.
	for _, name := range []string{ignition.KubeletEnvPath, ignition.KubeadmJoinPath, ignition.KubeletConfigPath, ignition.ClusterCAPath} {
		policy.Paths[name] = restartKubelet
	}
	// The agent reads its settings before each request.
	policy.Paths[assignment.SettingsPath] = rule(update.Action{Type: update.None})
	policy.Paths[checkScriptPath], policy.Paths[checkSumsPath] = rule(update.Action{Type: update.None}), rule(update.Action{Type: update.None})
	// These units do their work when the host starts. A new unit of the agent applies when the agent restarts.
	for _, name := range append([]string{ignition.DependenciesTarget}, ignition.OwnUnits...) {
		policy.Units[name] = rule(update.Action{Type: update.DaemonReload})
	}
	return policy
}
