package update

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A host that is interrupted in the middle of its update", func() {
	paused := HaveField("Annotations", HaveKey(clusterv1.MachineSkipRemediationAnnotation))

	// rebooting returns a world with a drained host that reboots for its update.
	rebooting := func(ctx SpecContext) *world {
		GinkgoHelper()
		w := newDrainingWorld(ctx)
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		Expect(w.machine(ctx, 0)).To(paused)
		return w
	}

	It("because its Machine is deleted, alone or by a scale-down, is left to Cluster API, and keeps its place until it is gone", func(ctx SpecContext) {
		w := rebooting(ctx)
		machine := w.machine(ctx, 0)
		machine.Finalizers = []string{clusterv1.MachineFinalizer}
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		Expect(w.management.Delete(ctx, machine)).To(Succeed())
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue(), "Cluster API drains it")
		Expect(w.told(ctx)).To(Equal([]int{0}))

		By("completing the deletion")
		Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.config(ctx, 0))).To(Succeed())
		machine = w.machine(ctx, 0)
		machine.Finalizers = nil
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 2 })
		w.settle(ctx)
		Expect(w.slots(ctx)).To(BeEmpty(), "Cluster API has not created the replacement yet")
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 1 })
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		_, err := w.reconcileHost(ctx, 1)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.node(ctx, 1).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(1, "rendered-worker-2")))
	})

	It("because its BareMetalHost is powered off keeps its place, is remediated after the deadline, and goes on if it is powered on", func(ctx SpecContext) {
		w := rebooting(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateRebootingReason), HaveField("Message", And(MatchRegexp(`\. The Node has not been Ready since 20\S+Z$`), Not(ContainSubstring("console"))))))
		config := w.config(ctx, 0)
		config.Status.Update.StageTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateOverdueReason), HaveField("Message", ContainSubstring("check the console of the host"))))

		By("powering it on")
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})
})
