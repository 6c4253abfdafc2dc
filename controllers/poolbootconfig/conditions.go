package poolbootconfig

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// obstacle returns the condition that reports why no data Secret can be created, yet or ever, or nil if there is no
// obstacle.
func obstacle(config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine, cluster *clusterv1.Cluster) *metav1.Condition {
	missing := func(reason, message string, args ...any) *metav1.Condition {
		return ptr.To(dataSecretMissing(reason, message, args...))
	}
	switch {
	case labels.IsMachinePoolOwned(config):
		return missing(bootstrapv1.MachinePoolNotSupportedReason,
			"a MachinePool owns this PoolbootConfig, and Poolboot does not support MachinePools: use a MachineDeployment")
	case machine == nil && !record.IsMachineless(config):
		return missing(bootstrapv1.WaitingForOwnerReason, "no Machine owns this PoolbootConfig yet")
	case machine != nil && util.IsControlPlaneMachine(machine):
		return missing(bootstrapv1.ControlPlaneNotSupportedReason,
			"Machine %s is a control plane machine, which is in no machine config pool: use the bootstrap provider of the control plane provider", machine.Name)
	case presetDataSecret(config, machine) != "":
		return missing(bootstrapv1.DataSecretPresetReason,
			"spec.bootstrap.dataSecretName of Machine %s is Secret %s, which Poolboot did not create: the host boots with that Secret; "+
				"to boot it into a pool, remove the field from the MachineDeployment and delete the Machine", machine.Name, presetDataSecret(config, machine))
	case cluster == nil:
		return missing(bootstrapv1.WaitingForClusterReason, "Cluster %s does not exist", clusterNameOf(config, machine))
	case !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false):
		return missing(bootstrapv1.WaitingForClusterInfrastructureReason, "infrastructure of Cluster %s is not provisioned yet", cluster.Name)
	case !conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition):
		return missing(bootstrapv1.WaitingForControlPlaneReason, "control plane of Cluster %s is not initialized yet", cluster.Name)
	}
	if err := identity.Of(cluster).CheckNodeName(registration.Name(registration.Naming{Config: config, Machine: machine})); err != nil && !record.HasNode(config) {
		return missing(bootstrapv1.NodeNameReservedReason, "%s: %s", err, registration.Rename(config))
	}
	return nil
}

// ready computes the Ready condition from the others. Ready is never True before the data Secret exists and the status
// contains its name, because Cluster API passes that name on to the infrastructure provider.
func ready(config *bootstrapv1.PoolbootConfig) metav1.Condition {
	ready := metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse}
	if !config.DeletionTimestamp.IsZero() {
		ready.Reason, ready.Message = bootstrapv1.DeletingReason, "the PoolbootConfig is being deleted"
		return ready
	}
	for _, check := range []struct {
		condition string
		blocks    func(*metav1.Condition) bool
	}{
		{bootstrapv1.PoolDecidedCondition, outlook.IsWrong},
		{bootstrapv1.DataSecretAvailableCondition, isNotTrue},
		{bootstrapv1.PoolDecidedCondition, isNotTrue},
		{bootstrapv1.UserDataSetCondition, outlook.IsWrong},
		{bootstrapv1.TokenUsableCondition, outlook.IsWrong},
		{bootstrapv1.BootPreparedCondition, outlook.IsWrong},
		{bootstrapv1.IgnitionSucceededCondition, outlook.IsWrong},
		{bootstrapv1.NodeInPoolCondition, outlook.IsWrong},
	} {
		c := conditions.Get(config, check.condition)
		if !check.blocks(c) || c != nil && check.condition == bootstrapv1.BootPreparedCondition && !outlook.Applies(config, c) {
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

func dataSecretMissing(reason, message string, args ...any) metav1.Condition {
	return dataSecretCondition(metav1.ConditionFalse, reason, message, args...)
}

func dataSecretCondition(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type:    bootstrapv1.DataSecretAvailableCondition,
		Status:  status,
		Reason:  reason,
		Message: fmt.Sprintf(message, args...),
	}
}
