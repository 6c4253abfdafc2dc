package boot

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A host that keeps a pool", func() {
	const storageLabel = poolv1.NodeRoleLabelPrefix + "storage"
	var s *setting
	// The spec of the config puts the Machine in infra. Its labels do not name a pool.
	BeforeEach(func() {
		s = newSetting()
		delete(s.machine.Labels, infraLabel)
		s.config.Spec.PoolRole, s.config.Status.PoolRole = "infra", "infra"
		s.config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost
		s.host.Annotations = map[string]string{poolv1.HostRetainedPoolAnnotation: "edge/storage/first-uid"}
	})
	storage := newPool("edge-storage", "storage")

	It("boots its next Machine into that pool", func(ctx SpecContext) {
		w := s.world(storage.DeepCopy())
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).Labels).To(And(HaveKey(storageLabel), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"), Not(HaveKey(infraLabel))))
		Expect(w.config(ctx).Status.PoolRole).To(Equal("storage"))
		Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayConfigurationAnnotation, "rendered-edge-storage-1"))
		Expect(w.newEvents()).To(ContainElement(And(HavePrefix("Normal "+bootstrapv1.EventPoolChanged), ContainSubstring(hostName), ContainSubstring("storage"))))
	})

	It("is reported even if another controller sees and records the Node first", func(ctx SpecContext) {
		w := s.world(storage.DeepCopy())
		w.before = func(int) error {
			if config := w.config(ctx); len(w.nodes(ctx)) > 0 && !config.Status.NodeRef.IsDefined() {
				change(ctx, w.management, config, func(c *bootstrapv1.PoolbootConfig) {
					c.Status.PoolRole, c.Status.NodeRef = "storage", bootstrapv1.NodeReference{Name: machineName, UID: string(w.node(ctx).UID)}
				})
			}
			return nil
		}
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.newEvents()).To(ContainElement(HavePrefix("Normal " + bootstrapv1.EventPoolChanged)))
	})

	DescribeTable("does not boot its next Machine into that pool",
		func(ctx SpecContext, change func(), words ...string) {
			change()
			w := s.world(storage.DeepCopy())
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			for _, word := range words {
				Expect(w.newEvents()).To(ContainElement(ContainSubstring(word)))
			}
		},
		Entry("when the Machine does not request it", func() { s.config.Spec.PoolRetention = bootstrapv1.PoolRetentionMachine }),
		Entry("when it is another Cluster's pool", func() { s.host.Annotations[poolv1.HostRetainedPoolAnnotation] = "other/storage/first-uid" }),
		Entry("when it is the pool of an earlier Cluster with the same name", func() { s.host.Annotations[poolv1.HostRetainedPoolAnnotation] = "edge/storage/another-uid" }),
		Entry("when a Node is already recorded", func() {
			s.config.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName, UID: "before"}
		}),
		Entry("when the pool does not exist, which is reported", func() { s.host.Annotations[poolv1.HostRetainedPoolAnnotation] = "edge/gone/first-uid" },
			"Warning "+bootstrapv1.EventRetainedPoolNotFound+" BareMetalHost "+hostName+" keeps pool gone"),
	)

	It("waits if the labels of the Machine name another pool, and each remedy in the message works", func(ctx SpecContext) {
		s.machine.Labels[infraLabel] = ""
		w := s.world(storage.DeepCopy())
		Expect(w.sendRequest(ctx)).Error().To(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.LabelConflictReason, hostName, `keeps pool "storage"`, "MachineDeployment", poolv1.HostRetainedPoolAnnotation)
		Expect(w.nodes(ctx)).To(BeEmpty())
		change(ctx, w.management, s.host, func(h *hostObject) { h.Annotations = nil })
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)

		s = newSetting()
		s.config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost
		s.host.Annotations = map[string]string{poolv1.HostRetainedPoolAnnotation: "edge/storage/first-uid"}
		w = s.world(storage.DeepCopy())
		Expect(w.sendRequest(ctx)).Error().To(HaveOccurred())
		change(ctx, w.management, s.machine, func(m *clusterv1.Machine) { delete(m.Labels, infraLabel) })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.config(ctx).Status.PoolRole).To(Equal("storage"))
	})
})
