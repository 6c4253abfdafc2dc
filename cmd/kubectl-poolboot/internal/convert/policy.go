package convert

import (
	"errors"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// setDisruptionPolicy gives the pool worker the node disruption policies of OpenShift, which count for all pools: in
// Poolboot, all pools inherit from worker.
func setDisruptionPolicy(objects *input.Objects, pools []poolv1.MachineConfigPool, remark func(string, ...any)) error {
	configurations := input.Of[*input.MachineConfiguration](objects)
	if len(configurations) == 0 {
		return nil
	}
	policy, remarks, wrong := input.DisruptionPolicy(configurations[0])
	for _, text := range remarks {
		remark("warning: %s", text)
	}
	if len(wrong) > 0 || len(policy.Files)+len(policy.Units)+len(policy.SSHKeys.Actions) == 0 {
		return objects.Refuse(input.OpenShiftPolicyKind.Kind, configurations[0].Name, wrong)
	}
	switch worker, err := pool.OfRole(pools, poolv1.RoleWorker); {
	case errors.As(err, new(*pool.NotFoundError)):
		remark("warning: MachineConfiguration %q: spec.nodeDisruptionPolicy is left out: the pool worker of the files is an object of Poolboot: set its spec.updates.disruptionPolicy", configurations[0].Name)
	case err == nil: // several are reported as given twice
		worker.Spec.Updates.DisruptionPolicy = policy
	}
	return nil
}
