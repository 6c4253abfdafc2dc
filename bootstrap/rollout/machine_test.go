package rollout_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// withConditions returns a Machine with conditions. Their keys are their types.
func withConditions(statuses map[string]metav1.ConditionStatus) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	for kind, status := range statuses {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status})
	}
	return m
}

func annotated(key string) *clusterv1.Machine {
	m := withConditions(nil)
	m.Annotations = map[string]string{key: ""}
	return m
}

func deleted() *clusterv1.Machine {
	m := withConditions(nil)
	now := metav1.NewTime(time.Now())
	m.DeletionTimestamp = &now
	return m
}

type statuses = map[string]metav1.ConditionStatus

var _ = DescribeTable("The host of a Machine", func(machine *clusterv1.Machine, work rollout.MachineWork, isToBeReplaced bool) {
	Expect(rollout.WorkOn(machine)).To(Equal(work))
	Expect(rollout.IsToBeReplaced(machine)).To(Equal(isToBeReplaced))
	h := rollout.HostOf(nil, &bootstrapv1.PoolbootConfig{}, machine, nil)
	in := h.ForRollout(&poolv1.MachineConfigPool{}, "target", nil, rollout.Hold{})
	Expect(in.IsLast).To(Equal(isToBeReplaced))
	if work != rollout.NoMachineWork {
		Expect(in.IsUnavailable && in.IsExcluded).To(BeTrue())
		Expect(h.WhyMachineFirst()).To(HavePrefix("Machine m " + string(work)))
	} else {
		Expect(h.WhyMachineFirst()).To(BeEmpty())
	}
	Expect(rollout.IsSameForRollout(machine, withConditions(nil))).To(Equal(work == rollout.NoMachineWork && !isToBeReplaced))
},
	Entry("that does not exist", nil, rollout.NoMachineWork, false),
	Entry("without conditions", withConditions(nil), rollout.NoMachineWork, false),
	Entry("that is being deleted", deleted(), rollout.MachineIsDeleted, false),
	Entry("that is healthy", withConditions(statuses{"HealthCheckSucceeded": "True"}), rollout.NoMachineWork, false),
	Entry("that is unhealthy, and has no condition that asks for remediation", withConditions(statuses{"HealthCheckSucceeded": "False"}), rollout.NoMachineWork, false),
	Entry("that is unhealthy, and its owner remediates it",
		withConditions(statuses{"HealthCheckSucceeded": "False", "OwnerRemediated": "False"}), rollout.MachineIsRemediated, false),
	Entry("that is unhealthy, and another controller remediates it",
		withConditions(statuses{"HealthCheckSucceeded": "False", "ExternallyRemediated": "False"}), rollout.MachineIsRemediated, false),
	Entry("that is healthy again while its owner has not seen it", withConditions(statuses{"HealthCheckSucceeded": "True", "OwnerRemediated": "False"}), rollout.NoMachineWork, false),
	Entry("that is updated in place", withConditions(statuses{"Updating": "True", "UpToDate": "True"}), rollout.MachineIsUpdatedInPlace, false),
	Entry("whose update in place has no condition yet", annotated(clusterv1.UpdateInProgressAnnotation), rollout.MachineIsUpdatedInPlace, false),
	Entry("that is not updated in place", withConditions(statuses{"Updating": "False"}), rollout.NoMachineWork, false),
	Entry("that its owner replaces", withConditions(statuses{"UpToDate": "False"}), rollout.NoMachineWork, true),
	Entry("that is up to date", withConditions(statuses{"UpToDate": "True"}), rollout.NoMachineWork, false),
	Entry("that is chosen for the next scale-down", annotated(clusterv1.DeleteMachineAnnotation), rollout.NoMachineWork, true),
)
