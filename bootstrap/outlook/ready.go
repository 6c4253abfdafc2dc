package outlook

import (
	"fmt"
	"time"

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
		{bootstrapv1.VersionsFitCondition, IsWrong},
		{bootstrapv1.NodeInPoolCondition, func(c *metav1.Condition) bool {
			return IsWrong(c) || c != nil && c.Reason == bootstrapv1.WaitingForNodeReason // nothing was adopted
		}},
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
	if !record.IsEnrolled(config) && !record.IsAdopted(config) && (!ptr.Deref(config.Status.Initialization.DataSecretCreated, false) || config.Status.DataSecretName == "") {
		ready.Reason, ready.Message = bootstrapv1.DataSecretFailedReason, "status.dataSecretName is not set yet"
		return ready
	}
	ready.Status, ready.Reason = metav1.ConditionTrue, clusterv1.ReadyReason
	return ready
}

func isNotTrue(c *metav1.Condition) bool { return c == nil || c.Status != metav1.ConditionTrue }

// Message returns what a boot waits for or what is wrong, from the condition that reports it. While the Cluster is
// paused, no controller writes these conditions. The message of a boot in progress is therefore marked as the message
// from before the pause.
func Message(config *bootstrapv1.PoolbootConfig) string {
	message := messageOf(config)
	paused := conditions.Get(config, clusterv1.PausedCondition)
	if stage, _ := record.StageOf(config); paused == nil || paused.Status != metav1.ConditionTrue || stage.IsAfterBoot() || stage == record.StageDeleting {
		if stage == record.StagePreparing && conditions.GetReason(config, bootstrapv1.BootPreparedCondition) == bootstrapv1.WaitingForRequestReason {
			return "the host has requested its configuration: the manager prepares its Node and its join credential next"
		}
		return message
	}
	return "Paused: " + paused.Message + ". Before: " + message
}

// messageOf returns the message without regard to a pause.
func messageOf(config *bootstrapv1.PoolbootConfig) string {
	if ready := conditions.Get(config, clusterv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse {
		return ready.Message
	}
	message := ""
	for _, kind := range []string{bootstrapv1.PoolDecidedCondition, bootstrapv1.DataSecretAvailableCondition,
		bootstrapv1.BootPreparedCondition, bootstrapv1.NodeInPoolCondition} {
		c := conditions.Get(config, kind)
		if c != nil && c.Status != metav1.ConditionTrue {
			return c.Message + howToJoin(config, c.Reason)
		}
		if c != nil {
			message = c.Message
		}
	}
	if stage, _ := record.StageOf(config); stage == record.StageWaitingForHost {
		if record.IsMachineless(config) {
			return fmt.Sprintf("%s is not being installed yet: see its state and its events", OwnerOf(config))
		}
		return "no host is chosen yet: see the Machine and its Metal3Machine, and which BareMetalHosts are available"
	}
	return message
}

// joinPatience is how long a host joins before its message says where to look.
const joinPatience = 5 * time.Minute

// howToJoin says where to look, and how the host gets another configuration, if it has been joining for long, or "".
func howToJoin(config *bootstrapv1.PoolbootConfig, reason string) string {
	stage, since := record.StageOf(config)
	if served := config.Status.Boot.ServedConfiguration.Name; reason == bootstrapv1.WaitingForKubeletReason && stage == record.StageJoining && served != "" && time.Since(since) > joinPatience {
		return fmt.Sprintf(". The host has its configuration, %s, and takes another one only when it boots again. "+
			"See its serial console: Ignition or the kubelet can fail there, and a mount that fails leads to emergency mode", served)
	}
	return ""
}
