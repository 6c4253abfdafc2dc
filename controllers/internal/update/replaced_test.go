package update

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
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
		_, err = w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = w.reconcileHost(ctx, 1)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.node(ctx, 1).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(1, "rendered-worker-2")))
	})

	It("takes no place from when its replacement has joined, however soon that is", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 2 })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.machine(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.config(ctx, 0))).To(Succeed())
		By("joining with what the pool hands out")
		config, machine, node := newObjects(hostName(2))
		config.Status.Boot.ServedConfiguration.Name = "rendered-worker-2"
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredAnnotation, revisionOf(2, "rendered-worker-2"))
		Expect(w.management.Create(ctx, config)).To(Succeed())
		Expect(w.management.Create(ctx, machine)).To(Succeed())
		Expect(w.workload.Create(ctx, node)).To(Succeed())
		w.reports(ctx, 2, agentv1.Done, revisionOf(2, "rendered-worker-2"), "")
		_, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(Equal([]string{hostName(1)}))
	})

	It("keeps its slot while its Machine exists", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		machine := w.machine(ctx, 0)
		machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PoolbootConfig", Name: hostName(0)}
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		Expect(w.management.Delete(ctx, w.config(ctx, 0))).To(Succeed())
		_, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(Equal([]string{hostName(0)}))
	})
})

var _ = It("A host that only a cache lacks keeps its slot", func(ctx SpecContext) {
	w := newDrainingWorld(ctx)
	Expect(w.management.Delete(ctx, w.machine(ctx, 0))).To(Succeed())
	m := newStaleManager(ctx, w)
	m.configs.Items = m.configs.Items[1:]
	for range 2 {
		_, err := m.reconcilePool(ctx, poolKey)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(Equal([]string{hostName(0)}))
		w.passed += time.Minute
		m.refresh(ctx)
		m.configs.Items = m.configs.Items[1:]
	}
})
