package outlook

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Ready returns the condition Ready of a PoolbootConfig, which follows from the others. It is never True before the
// data Secret exists and the status contains its name, because Cluster API passes that name on to the infrastructure
// provider.
func Ready(config *bootstrapv1.PoolbootConfig) metav1.Condition {
	ready := metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse}
	if !config.DeletionTimestamp.IsZero() {
		ready.Reason, ready.Message = bootstrapv1.DeletingReason, "the PoolbootConfig is being deleted"
		return ready
	}
	for _, check := range []struct {
		condition string
		blocks    func(*metav1.Condition) bool
	}{
		{bootstrapv1.PoolDecidedCondition, IsWrong},
		{bootstrapv1.DataSecretAvailableCondition, isNotTrue},
		{bootstrapv1.PoolDecidedCondition, isNotTrue},
		{bootstrapv1.UserDataSetCondition, IsWrong},
		{bootstrapv1.TokenUsableCondition, IsWrong},
		{bootstrapv1.BootPreparedCondition, IsWrong},
		{bootstrapv1.IgnitionSucceededCondition, IsWrong},
		{bootstrapv1.NodeInPoolCondition, IsWrong},
	} {
		c := conditions.Get(config, check.condition)
		if !check.blocks(c) || c != nil && check.condition == bootstrapv1.BootPreparedCondition && !Applies(config, c) {
			continue
		}
		ready.Reason, ready.Message = check.condition+"Unknown", check.condition+" is not known yet"
		if c != nil {
			ready.Reason, ready.Message = c.Reason, check.condition+": "+c.Message
		}
		return ready
	}
	if !record.IsEnrolled(config) && (!ptr.Deref(config.Status.Initialization.DataSecretCreated, false) || config.Status.DataSecretName == "") {
		ready.Reason, ready.Message = bootstrapv1.DataSecretFailedReason, "status.dataSecretName is not set yet"
		return ready
	}
	ready.Status, ready.Reason = metav1.ConditionTrue, clusterv1.ReadyReason
	return ready
}

func isNotTrue(c *metav1.Condition) bool { return c == nil || c.Status != metav1.ConditionTrue }
