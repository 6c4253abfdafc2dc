package poolbootconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/workload"
)

// decidePool records the pool, or why there is none.
func (r *Reconciler) decidePool(ctx context.Context, s *scope) error {
	if s.cluster == nil || s.machine == nil && s.config.Spec.Host == nil {
		return nil // only a config whose data Secret stands comes here without them
	}
	pools, err := workload.PoolsOfCluster(ctx, r.Client, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	s.pools = pools
	var labels map[string]string
	if s.machine != nil {
		labels = s.machine.Labels
	}
	role, condition := decide(s.config, labels, pools)
	s.config.Status.Pool = role
	conditions.Set(s.config, condition)
	return nil
}

// decide returns the role of the pool that a config's Machine belongs to, "" for none, and the condition that says why.
// Once a Node was made, the record stands and the node controller keeps it; the condition is about that as soon as the ground
// for it is no longer what it was.
func decide(config *bootstrapv1.PoolbootConfig, machineLabels map[string]string, pools []poolv1.MachineConfigPool) (string, metav1.Condition) {
	decided := metav1.Condition{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionTrue}
	labels := map[string]string{}
	maps.Copy(labels, config.Labels)
	maps.Copy(labels, machineLabels) // the Machine's are the truth
	role, why, err := pool.ForMachine(config.Spec.Pool, labels, pools)
	mayStay := config.Spec.PoolRetention == bootstrapv1.RetainOnHost
	if recorded := config.Status.Pool; config.Status.Node != nil && recorded != "" && (err != nil || role != recorded || mayStay) {
		decided.Reason = bootstrapv1.PoolRecordedReason
		decided.Message = fmt.Sprintf("pool %q is recorded for Node %s", recorded, config.Status.Node.Name)
		return recorded, decided
	}
	if err != nil {
		decided.Status, decided.Reason, decided.Message = metav1.ConditionFalse, poolErrorReason(err), err.Error()
		return "", decided
	}
	decided.Reason = string(why)
	switch why {
	case bootstrapv1.PoolFromSpecReason:
		decided.Message = fmt.Sprintf("pool %q, by spec.pool", role)
	case bootstrapv1.PoolFromLabelsReason:
		decided.Message = fmt.Sprintf("pool %q, by the Machine's labels", role)
	default:
		decided.Message = fmt.Sprintf("pool %q, because no label of the Machine names another", role)
	}
	if mayStay {
		decided.Message += "; one that the host keeps comes first, once the host is known"
	}
	return role, decided
}

func poolErrorReason(err error) string {
	switch {
	case is[*pool.NotFoundError](err):
		return bootstrapv1.PoolNotFoundReason
	case is[*pool.NotRegistrableError](err), is[*pool.SelectorError](err):
		return bootstrapv1.PoolNotRegistrableReason
	case is[*pool.ControlPlaneError](err):
		return bootstrapv1.ControlPlaneNotSupportedReason
	}
	return bootstrapv1.PoolConflictReason
}

// is says whether an error is of a kind.
func is[Kind error](err error) bool {
	_, is := errors.AsType[Kind](err)
	return is
}
