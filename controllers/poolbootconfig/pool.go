package poolbootconfig

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// decidePool records the pool, or why there is none.
func (r *Reconciler) decidePool(ctx context.Context, s *scope) error {
	if s.cluster == nil || s.machine == nil && !record.IsMachineless(s.config) {
		return nil // this happens only if the data Secret already exists
	}
	pools, err := workload.PoolsOfCluster(ctx, r.Client, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	s.pools = pools
	boot := pool.Boot{Config: s.config, Machine: s.machine, Pools: pools}
	if s.inline, err = r.readInline(ctx, s); err != nil {
		return err
	}
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
	if err != nil {
		return assigned.Role, metav1.Condition{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionFalse, Reason: poolErrorReason(err), Message: err.Error()}
	}
	return assigned.Role, metav1.Condition{Type: bootstrapv1.PoolDecidedCondition, Status: metav1.ConditionTrue, Reason: string(assigned.Reason), Message: assigned.Message(boot)}
}

// poolIsDecided reports whether a boot can continue with the recorded pool.
func poolIsDecided(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.PoolRole != "" && conditions.IsTrue(config, bootstrapv1.PoolDecidedCondition)
}

func poolErrorReason(err error) string {
	switch {
	case is[*pool.NotFoundError](err), is[*pool.UnselectedError](err):
		return bootstrapv1.PoolNotFoundReason
	case is[*pool.NotRegistrableError](err), is[*pool.SelectorError](err):
		return bootstrapv1.PoolNotRegistrableReason
	case is[*pool.ControlPlaneError](err):
		return bootstrapv1.ControlPlaneNotSupportedReason
	}
	return bootstrapv1.PoolConflictReason
}

// is reports whether an error is of a kind.
func is[Kind error](err error) bool {
	_, is := errors.AsType[Kind](err)
	return is
}
