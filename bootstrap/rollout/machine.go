package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// MachineWork is what Cluster API does to a Machine. Its order wins: the host of such a Machine begins no update.
type MachineWork string

const (
	// NoMachineWork means that Cluster API does nothing to the Machine that an update could disturb.
	NoMachineWork MachineWork = ""
	// MachineIsDeleted means that the Machine is being deleted. Cluster API drains its Node.
	MachineIsDeleted MachineWork = "is being deleted"
	// MachineIsRemediated means that health checks failed, and that the owner of the Machine or an external controller
	// is asked to remediate it. Most of them delete the Machine, and some reboot its host.
	MachineIsRemediated MachineWork = "is being remediated"
	// MachineIsUpdatedInPlace means that Cluster API updates the Machine in place.
	MachineIsUpdatedInPlace MachineWork = "is being updated in place"
)

// WorkOn returns what Cluster API does to a Machine, which can be nil.
func WorkOn(machine *clusterv1.Machine) MachineWork {
	switch {
	case machine == nil:
		return NoMachineWork
	case !machine.DeletionTimestamp.IsZero():
		return MachineIsDeleted
	case isFalse(machine, clusterv1.MachineHealthCheckSucceededCondition) &&
		(isFalse(machine, clusterv1.MachineOwnerRemediatedCondition) || isFalse(machine, clusterv1.MachineExternallyRemediatedCondition)):
		return MachineIsRemediated
	case isUpdatedInPlace(machine):
		return MachineIsUpdatedInPlace
	}
	return NoMachineWork
}

// isUpdatedInPlace looks at the annotation too, because the condition follows it.
func isUpdatedInPlace(machine *clusterv1.Machine) bool {
	_, isAnnotated := machine.Annotations[clusterv1.UpdateInProgressAnnotation]
	return isAnnotated || conditions.IsTrue(machine, clusterv1.MachineUpdatingCondition)
}

// IsToBeReplaced reports whether the owner of a Machine, which can be nil, is about to replace or to remove it: the
// Machine differs from what its owner creates now, or a user chose it for the next scale-down.
func IsToBeReplaced(machine *clusterv1.Machine) bool {
	if machine == nil {
		return false
	}
	_, isChosen := machine.Annotations[clusterv1.DeleteMachineAnnotation]
	return isChosen || isFalse(machine, clusterv1.MachineUpToDateCondition)
}

// IsSameForRollout reports whether a rollout sees no difference between two versions of a Machine, apart from labels.
func IsSameForRollout(before, after *clusterv1.Machine) bool {
	return WorkOn(before) == WorkOn(after) && IsToBeReplaced(before) == IsToBeReplaced(after)
}

// MachineWork returns what Cluster API does to the Machine of the host.
func (h *Host) MachineWork() MachineWork { return WorkOn(h.Machine) }

// WhyMachineFirst returns why the host waits for Cluster API, or "".
func (h *Host) WhyMachineFirst() string {
	work := h.MachineWork()
	if work == NoMachineWork {
		return ""
	}
	return fmt.Sprintf("Machine %s %s, and Cluster API is first: see the conditions of the Machine", h.Machine.Name, work)
}

// isFalse reports whether a condition of a Machine is False. One that does not exist or is Unknown is not.
func isFalse(machine *clusterv1.Machine, kind string) bool {
	c := conditions.Get(machine, kind)
	return c != nil && c.Status == metav1.ConditionFalse
}

// CordonedByUpdate is the value of agentv1.CordonedAnnotation.
const CordonedByUpdate = "true"

// IsCordonedByUpdate reports whether the manager cordoned a Node for the update of its host.
func IsCordonedByUpdate(node *corev1.Node) bool {
	return node.Annotations[agentv1.CordonedAnnotation] == CordonedByUpdate
}

// Cordon cordons a Node for the update of its host, unless it is cordoned. Kubernetes adds a taint to a Node that is
// cordoned. It is added here too, so that the next write of the Node does not conflict with that of Kubernetes.
func Cordon(node *corev1.Node) {
	if node.Spec.Unschedulable {
		return
	}
	node.Spec.Unschedulable = true
	if !slices.ContainsFunc(node.Spec.Taints, isCordonTaint) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.CordonedAnnotation, CordonedByUpdate)
}

// EndUpdate ends what the manager began with a Node for the update of its host. A Node that was cordoned by someone
// else stays cordoned.
func EndUpdate(node *corev1.Node) {
	if IsCordonedByUpdate(node) {
		node.Spec.Unschedulable = false
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isCordonTaint)
	}
	for _, key := range []string{agentv1.BegunAnnotation, agentv1.CordonedAnnotation, agentv1.DrainStartedAnnotation, agentv1.DetachStartedAnnotation, agentv1.DrainedAnnotation, agentv1.Metal3RebootsAnnotation} {
		delete(node.Annotations, key)
	}
}

// isCordonTaint reports whether a taint is that of a Node that is cordoned.
func isCordonTaint(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
}

// StagePatience is how long a stage of an update can last beyond spec.updates.readyDeadlineSeconds of the pool. Then
// health checks of the Machine count again, and the host needs a person.
const StagePatience = 10 * time.Minute

// StageDeadline returns how long a stage of an update can last in a pool.
func StageDeadline(p *poolv1.MachineConfigPool) time.Duration {
	return time.Duration(p.Spec.Updates.ReadyDeadline())*time.Second + StagePatience
}

// StageLeft returns how much is left of the deadline of the stage that is recorded for a host, or 0 if it is over. The
// host must be in a stage. While Metal3 has its firmware, the deadline has not begun.
func StageLeft(config *bootstrapv1.PoolbootConfig, deadline time.Duration, now time.Time) time.Duration {
	if IsFirmwareApplied(config) {
		return deadline
	}
	return max(deadline-now.Sub(config.Status.Update.StageTime.Time), 0)
}

// IsFirmwareApplied reports whether it is recorded that Metal3 applies firmware settings or updates to a host that
// reboots for its update, or has failed to and tries it again.
func IsFirmwareApplied(config *bootstrapv1.PoolbootConfig) bool {
	reason := conditions.GetReason(config, bootstrapv1.UpdatedCondition)
	return config.Status.Update.Stage == bootstrapv1.UpdateRebooting &&
		(reason == bootstrapv1.UpdateApplyingFirmwareReason || reason == bootstrapv1.FirmwareFailedReason)
}

// IsInterrupted reports whether it is recorded that a host is changed, reboots or is verified for its update. Meanwhile
// its Node can be not Ready.
func IsInterrupted(config *bootstrapv1.PoolbootConfig) bool {
	switch config.Status.Update.Stage {
	case bootstrapv1.UpdateApplying, bootstrapv1.UpdateRebooting, bootstrapv1.UpdateVerifying:
		return config.Status.Update.StageTime != nil
	}
	return false
}
