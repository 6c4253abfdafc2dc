package update

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A host whose Machine is deleted in its update", func() {
	It("counts until its replacement has joined, or the pool is smaller by it", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 2 })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 1, agentv1.Done, revisionOf(1, "rendered-worker-1"), "")
		Expect(w.told(ctx)).To(Equal([]int{0}))
		By("deleting the Machine with all that belongs to it")
		Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.machine(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.config(ctx, 0))).To(Succeed())
		_, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.node(ctx, 1).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(1, "rendered-worker-1")))
		By("not replacing it")
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 1 })
		w.passed += time.Minute
		_, err = w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = w.reconcileHost(ctx, 1)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.node(ctx, 1).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(1, "rendered-worker-2")))
	})
})
