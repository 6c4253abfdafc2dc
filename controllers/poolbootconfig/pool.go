package poolbootconfig

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// decidePool records the pool, or why there is none.
func (r *Reconciler) decidePool(ctx context.Context, s *scope) error {
	if s.cluster == nil || s.machine == nil && !record.IsMachineless(s.config) {
		return nil // this happens only if the data Secret already exists
	}
	var err error
	if s.pools, err = workload.PoolsOfCluster(ctx, r.Client, client.ObjectKeyFromObject(s.cluster)); err != nil {
		return err
	}
	if s.inline, err = r.readInline(ctx, s); err != nil {
		return err
	}
	boot := pool.Boot{Config: s.config, Machine: s.machine, Pools: s.pools}
	if s.inline != nil {
		boot.DataSecret = s.inline
	}
	role, condition := decide(boot)
	s.config.Status.PoolRole = role
	conditions.Set(s.config, condition)
	return nil
}

// decide returns the pool role to record, or "" for none, and the condition that reports why.
func decide(boot pool.Boot) (string, metav1.Condition) {
	assigned, err := pool.ForBoot(boot)
	condition := metav1.Condition{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionTrue, Reason: string(assigned.Reason)}
	if err != nil {
		condition.Status, condition.Message = metav1.ConditionFalse, err.Error()
		condition.Reason = cmp.Or(outlook.ReasonOf(err), bootstrapv1.PoolConflictReason)
	} else {
		condition.Message = assigned.Message(boot)
	}
	return assigned.Role, condition
}

// isPoolDecided reports whether a boot can continue with the recorded pool.
func isPoolDecided(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.PoolRole != "" && conditions.IsTrue(config, bootstrapv1.PoolDecidedCondition)
}
