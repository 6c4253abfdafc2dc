package bootstrapdata

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// The decision itself is tested in bootstrap/pool/boot_test.go. These tests are about how it is reported.
var _ = Describe("The pool of a Machine that has not booted", func() {
	unregistrable := newPool("odd")
	unregistrable.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "example.com/odd", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}},
	}}
	pools := []poolv1.MachineConfigPool{*newPool("worker"), *newPool("infra"), *newPool("edge"), *unregistrable}
	recorded := func(config *bootstrapv1.PoolbootConfig) {
		config.Status.PoolRole = "edge"
		config.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName, UID: "node-uid"}
	}
	in := func(role string) func(*bootstrapv1.PoolbootConfig) {
		return func(config *bootstrapv1.PoolbootConfig) { config.Spec.PoolRole = role }
	}
	odd := func(labels map[string]string) map[string]string {
		labels["example.com/odd"] = "no"
		return labels
	}
	DescribeTable("is decided with a reason:",
		func(labels map[string]string, role, reason string, change ...func(*bootstrapv1.PoolbootConfig)) {
			got, condition := decide(pool.Boot{Config: newConfig(change...), Machine: newMachine(odd(labels)), Pools: pools})
			Expect(got).To(Equal(role))
			Expect(condition.Reason).To(Equal(reason))
			Expect(condition.Status == metav1.ConditionTrue).To(Equal(role != ""))
			Expect(condition.Message).NotTo(BeEmpty())
		},
		Entry("spec.poolRole before labels", role("infra"), "edge", bootstrapv1.PoolSpecifiedInConfigReason, in("edge")),
		Entry("the Machine's labels", role("infra", "worker"), "infra", bootstrapv1.PoolFromMachineLabelsReason),
		Entry("not the labels of the config, which can come from its template and do not reach the Node", map[string]string{}, "worker", bootstrapv1.PoolDefaultedToWorkerReason,
			func(config *bootstrapv1.PoolbootConfig) { config.Labels[poolv1.NodeRoleLabelPrefix+"infra"] = "" }),
		Entry("worker without labels", map[string]string{}, "worker", bootstrapv1.PoolDefaultedToWorkerReason),
		Entry("the recorded pool once a Node is pre-registered", role("infra"), "edge", bootstrapv1.PoolRecordedReason, recorded),
		Entry("none for two custom pools", role("infra", "edge"), "", bootstrapv1.PoolConflictReason),
		Entry("none for a pool that does not exist", map[string]string{}, "", bootstrapv1.PoolNotFoundReason, in("gpu")),
		Entry("none for a role label that no pool selects", role("gpu"), "", bootstrapv1.PoolNotFoundReason),
		Entry("none for a selector without labels to register", map[string]string{}, "", bootstrapv1.PoolNotRegistrableReason, in("odd")),
		Entry("none for control plane labels", role("control-plane"), "", bootstrapv1.ControlPlaneNotSupportedReason),
	)
})

var _ = Describe("A Machine whose custom pool is missing", func() {
	DescribeTable("waits instead of booting as a worker, reports why, and continues when the pool exists",
		func(ctx SpecContext, source func(*bootstrapv1.PoolbootConfig)) {
			worker, rendered := renderedWorker()
			infra := newPool("infra")
			infra.Status.Configuration = worker.Status.Configuration
			s := newSite(newCluster(), newMachine(role("infra")), newConfig(source), worker, rendered)
			config := s.settle(ctx)
			Expect(config.Status.DataSecretName).To(BeEmpty())
			decided := conditions.Get(config, bootstrapv1.PoolDecidedCondition)
			Expect(decided).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.PoolNotFoundReason),
				HaveField("Message", And(ContainSubstring(poolv1.NodeRoleLabelPrefix+"infra="), ContainSubstring("spec.poolRole: worker")))))
			Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.PoolNotFoundReason))
			Expect(s.newEvents()).To(ContainElement(HavePrefix("Warning " + bootstrapv1.PoolNotFoundReason)))

			Expect(s.Create(ctx, infra)).To(Succeed())
			Expect(s.Status().Update(ctx, infra)).To(Succeed())
			config = s.settle(ctx)
			Expect(config.Status.PoolRole).To(Equal("infra"))
			Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		},
		Entry("with a pointer", func(*bootstrapv1.PoolbootConfig) {}),
		Entry("with an inline data Secret", inlineSource),
	)

	It("keeps it recorded if the pool is force-deleted before its host sends a request, and continues when the pool is created again", func(ctx SpecContext) {
		infra := newPool("infra")
		s := newSite(newCluster(), newMachine(role("infra")), newConfig(), newPool("worker"), infra)
		Expect(s.settle(ctx).Status.PoolRole).To(Equal("infra"))
		Expect(s.Delete(ctx, infra)).To(Succeed())
		config := s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.PoolNotFoundReason))
		s.newEvents()
		Expect(s.Create(ctx, newPool("infra"))).To(Succeed())
		Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
		Expect(s.newEvents()).To(ConsistOf(HavePrefix("Normal "+bootstrapv1.EventPoolDecided)), "the problem is resolved")
	})

	It("gets its data Secret when its pool is created, and an event reports this", func(ctx SpecContext) {
		s := newSite(newCluster(), newMachine(role("infra")), newConfig(), newPool("worker"))
		Expect(reasonOf(s.settle(ctx), clusterv1.ReadyCondition)).To(Equal(bootstrapv1.PoolNotFoundReason))
		s.newEvents()
		Expect(s.Create(ctx, newPool("infra"))).To(Succeed())
		Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
		Expect(s.newEvents()).To(ConsistOf(And(HavePrefix("Normal "+bootstrapv1.EventDataSecretCreated), ContainSubstring(`pool "infra", by the Machine's labels`),
			Not(ContainSubstring(pointerIn(s.secret(ctx)).Token)))))
	})

	It("boots as a worker if spec.poolRole is worker", func(ctx SpecContext) {
		s := newSite(newCluster(), newMachine(role("infra")), newConfig(func(c *bootstrapv1.PoolbootConfig) { c.Spec.PoolRole = "worker" }), newPool("worker"))
		config := s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("worker"))
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
	})
})

var _ = Describe("The pool of an inline data Secret", func() {
	infra := func() (*poolv1.MachineConfigPool, *poolv1.MachineConfig, *poolv1.MachineConfigPool) {
		GinkgoHelper()
		worker, rendered := renderedWorker()
		custom := newPool("infra")
		custom.Status.Configuration = worker.Status.Configuration
		return worker, rendered, custom
	}
	relabel := func(ctx context.Context, s *site, labels map[string]string) {
		GinkgoHelper()
		machine := newMachine(nil)
		Expect(s.Get(ctx, key, machine)).To(Succeed())
		machine.Labels = labels
		Expect(s.Update(ctx, machine)).To(Succeed())
	}

	DescribeTable("stays recorded if the input of the decision changes:",
		func(ctx SpecContext, change func(context.Context, *site)) {
			worker, rendered, custom := infra()
			s := newSite(newCluster(), newMachine(role("infra")), newConfig(inlineSource), worker, rendered, custom)
			Expect(s.settle(ctx).Status.PoolRole).To(Equal("infra"))
			Expect(s.secret(ctx).Annotations).To(HaveKeyWithValue(bootstrapv1.DataSecretPoolAnnotation, "infra"))
			change(ctx, s)
			config := s.settle(ctx)
			Expect(config.Status.PoolRole).To(Equal("infra"))
			Expect(conditions.IsTrue(config, bootstrapv1.PoolDecidedCondition)).To(BeTrue())
			Expect(config.Status.DataSecretName).To(Equal(machineName))
		},
		Entry("the Machine's labels", func(ctx context.Context, s *site) { relabel(ctx, s, nil) }),
		Entry("the Machine's labels, to those of two pools", func(ctx context.Context, s *site) {
			Expect(s.Create(ctx, newPool("edge"))).To(Succeed())
			relabel(ctx, s, role("infra", "edge"))
		}),
		Entry("its pool is deleted", func(ctx context.Context, s *site) { Expect(s.Delete(ctx, newPool("infra"))).To(Succeed()) }),
		Entry("another pool is created that selects the Machine too", func(ctx context.Context, s *site) {
			relabel(ctx, s, role("infra", "edge"))
			Expect(s.Create(ctx, newPool("edge"))).To(Succeed())
		}),
		Entry("the status is lost, as by clusterctl move, and the labels change", func(ctx context.Context, s *site) {
			config := newConfig()
			Expect(s.Get(ctx, key, config)).To(Succeed())
			config.Status = bootstrapv1.PoolbootConfigStatus{}
			Expect(s.Status().Update(ctx, config)).To(Succeed())
			relabel(ctx, s, nil)
		}),
		Entry("the status is lost of a Secret that only names its rendered config", func(ctx context.Context, s *site) {
			secret := s.secret(ctx)
			delete(secret.Annotations, bootstrapv1.DataSecretPoolAnnotation)
			secret.Annotations[bootstrapv1.OverlayConfigurationAnnotation] = "rendered-infra-0123456789abcdef0123456789abcdef"
			Expect(s.Update(ctx, secret)).To(Succeed())
			config := newConfig()
			Expect(s.Get(ctx, key, config)).To(Succeed())
			config.Status = bootstrapv1.PoolbootConfigStatus{}
			Expect(s.Status().Update(ctx, config)).To(Succeed())
			relabel(ctx, s, nil)
		}),
	)

	It("is the one in the Secret, at whichever write the manager stops and however the labels change then", func(ctx SpecContext) {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				worker, rendered, custom := infra()
				s := newSite(newCluster(), newMachine(role("infra")), newConfig(inlineSource), worker, rendered, custom)
				s.CrashAt, s.Late = failing, late
				for s.Writes < failing && s.reconciles(ctx) {
					continue
				}
				over := s.Writes < failing
				relabel(ctx, s, nil)
				config := s.settle(ctx)
				Expect(s.secret(ctx).Annotations).To(HaveKeyWithValue(bootstrapv1.DataSecretPoolAnnotation, config.Status.PoolRole), "write %d, late %v", failing, late)
				if over {
					Expect(config.Status.PoolRole).To(Equal("infra"))
					break
				}
			}
		}
	})
})
