package update

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("Work of Cluster API on a Machine", func() {
	change := func(ctx SpecContext, w *world, i int, change func(*clusterv1.Machine)) {
		GinkgoHelper()
		machine := w.machine(ctx, i)
		change(machine)
		Expect(w.management.Update(ctx, machine)).To(Succeed())
	}
	isUpdatedInPlace := func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	}
	isIdle := func(m *clusterv1.Machine) { m.Annotations, m.Status.Conditions = nil, nil }

	It("comes before the update of its host, which takes a place meanwhile and says why it waits", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
		change(ctx, w, 0, isUpdatedInPlace)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason),
			HaveField("Message", ContainSubstring("Machine host-0 is being updated in place, and Cluster API is first"))))
		change(ctx, w, 0, isIdle)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 1}))
	})

	It("updates a host last whose Machine is about to be replaced", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		change(ctx, w, 0, func(m *clusterv1.Machine) {
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse}}
		})
		w.render(ctx, "rendered-worker-2")
		for _, i := range []int{1, 2, 0} {
			w.settle(ctx)
			Expect(w.told(ctx)).To(Equal([]int{i}))
			w.complete(ctx, i)
		}
	})

	It("holds back the drain of a host that has begun its update", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		change(ctx, w, 0, isUpdatedInPlace)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateDrainingReason), HaveField("Message", ContainSubstring("Cluster API is first"))))
		change(ctx, w, 0, isIdle)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DrainedAnnotation))
	})

	It("is noticed when its taints change, which its Node is registered with", func() {
		_, before, _ := newObjects(hostName(0))
		after := before.DeepCopy()
		after.Spec.Taints = []clusterv1.MachineTaint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		Expect(machineChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
	})

	It("is noticed when it begins and when it ends, and other changes of a Machine are not", func() {
		_, before, _ := newObjects(hostName(0))
		after := before.DeepCopy()
		Expect(machineChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeFalse())
		isUpdatedInPlace(after)
		Expect(machineChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
		Expect(machineChanged(event.UpdateEvent{ObjectOld: after, ObjectNew: before})).To(BeTrue())
	})
})
