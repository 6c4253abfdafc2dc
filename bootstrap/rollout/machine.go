package rollout

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
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
