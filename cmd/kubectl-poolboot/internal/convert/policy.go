package convert

import (
	"errors"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// setDisruptionPolicy gives the pool worker the node disruption policies of OpenShift, which count for all pools: in
// Poolboot, all pools inherit from worker.
func setDisruptionPolicy(configurations []input.MachineConfiguration, pools []poolv1.MachineConfigPool, remark func(string, ...any)) error {
	if len(configurations) == 0 {
		return nil
	}
	if len(configurations) > 1 {
		return errors.New("the files contain several MachineConfigurations, and OpenShift has only one: remove the others")
	}
	policy, remarks, err := configurations[0].DisruptionPolicy()
	for _, text := range remarks {
		remark("warning: %s", text)
	}
	if err != nil || len(policy.Files)+len(policy.Units)+len(policy.SSHKeys.Actions) == 0 {
		return err
	}
	if worker, err := pool.OfRole(pools, poolv1.RoleWorker); err == nil { // several are reported as given twice
		worker.Spec.DisruptionPolicy = policy
	}
	return nil
}
