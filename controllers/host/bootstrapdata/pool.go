package bootstrapdata

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// decidePool records the pool, or why there is none.
func (r *Phases) decidePool(ctx context.Context, s *state) error {
	if s.Cluster == nil || s.Machine == nil && !record.IsMachineless(s.Config) {
		return nil // this happens only if the data Secret already exists
	}
	var err error
	if s.pools, err = s.Pools(ctx); err != nil {
		return err
	}
	if s.inline, err = r.readInline(ctx, s); err != nil {
		return err
	}
	boot := pool.Boot{Config: s.Config, Machine: s.Machine, Pools: s.pools}
	if s.inline != nil {
		boot.DataSecret = s.inline
	}
	role, condition := decide(boot)
	s.Config.Status.PoolRole = role
	conditions.Set(s.Config, condition)
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
