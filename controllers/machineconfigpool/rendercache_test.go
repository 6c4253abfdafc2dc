package machineconfigpool

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
)

var _ = Describe("A pool that was rendered", func() {
	var s *fixture
	BeforeEach(func() {
		s = newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour),
			config("00-base", "worker", "base"), config("50-infra", "infra", "infra"), config("50-other", "other", "other"))
		s.reconcile("infra")
	})
	renders := func() uint64 {
		GinkgoHelper()
		m := &dto.Metric{}
		Expect(renderSeconds.Write(m)).To(Succeed())
		return m.GetHistogram().GetSampleCount()
	}
	change := func(o client.Object, change func()) {
		GinkgoHelper()
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(o), o)).To(Succeed())
		change()
		Expect(s.Update(ctx(), o)).To(Succeed())
	}
	mconf := func(name string) *poolv1.MachineConfig {
		return &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	}
	pool := func(name string) *poolv1.MachineConfigPool {
		return &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	}

	DescribeTable("is not rendered again", func(happens func()) {
		before := renders()
		happens()
		s.reconcile("infra", "infra")
		Expect(renders()).To(Equal(before))
	},
		Entry("when nothing happened", func() {}),
		Entry("when a Machine is recorded in it", func() { Expect(s.Create(ctx(), machine("m1", "infra", "", true))).To(Succeed()) }),
		Entry("when a MachineConfig changes that it does not select", func() { s.set(mconf("50-other"), "changed") }),
		Entry("when a MachineConfig is created that it does not select", func() { Expect(s.Create(ctx(), config("51-other", "other", ""))).To(Succeed()) }),
	)

	DescribeTable("is rendered again, once", func(happens func(), content string) {
		before := renders()
		happens()
		Expect(string(s.rendered(s.reconcile("infra", "infra")).Spec.Config.Raw)).To(ContainSubstring(content))
		Expect(renders()).To(Equal(before + 1))
	},
		Entry("when its MachineConfig changes", func() { s.set(mconf("50-infra"), "changed") }, "data:,changed"),
		Entry("when a MachineConfig changes that it inherits", func() { s.set(mconf("00-base"), "changed") }, "data:,changed"),
		Entry("when another MachineConfig is created for it", func() { Expect(s.Create(ctx(), config("51-infra", "infra", "more"))).To(Succeed()) }, "data:,more"),
		Entry("when one is labeled for it", func() {
			o := mconf("50-other")
			change(o, func() { o.Labels["role"] = "infra" })
		}, "data:,other"),
		Entry("when one is no longer labeled for it", func() {
			o := mconf("50-infra")
			change(o, func() { o.Labels["role"] = "nobody" })
		}, "data:,base"),
		Entry("when one is deleted", func() { Expect(s.Delete(ctx(), config("50-infra", "infra", ""))).To(Succeed()) }, "data:,base"),
		Entry("when one is deleted and created again", func() {
			Expect(s.Delete(ctx(), config("50-infra", "infra", ""))).To(Succeed())
			again := config("50-infra", "infra", "again")
			again.UID = "another"
			Expect(s.Create(ctx(), again)).To(Succeed())
		}, "data:,again"),
		Entry("when it selects others", func() {
			o := pool("infra")
			change(o, func() { o.Spec.MachineConfigSelector.MatchLabels["role"] = "other" })
		}, "data:,other"),
		Entry("when the worker pool selects others", func() {
			o := pool("worker")
			change(o, func() { o.Spec.MachineConfigSelector.MatchLabels["role"] = "other" })
		}, "data:,other"),
		Entry("when its rendered config is deleted", func() { Expect(s.Delete(ctx(), s.rendered(s.pool("infra")))).To(Succeed()) }, "data:,infra"),
	)

	It("reports an error as long as it persists, although it is found once", func() {
		s.set(mconf("50-infra"), "a b")
		before := renders()
		for range 3 {
			Expect(s.reconcile("infra")).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.RenderFailedReason, "50-infra"))
		}
		Expect(renders()).To(Equal(before + 1))
		s.set(mconf("50-infra"), "ab")
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
	})

	It("is not reconciled while the cache does not contain the last write to it, but only for a limited time", func() {
		s.stalePool = s.pool("infra")
		s.set(mconf("50-infra"), "changed")
		written := s.reconcile("infra")
		before := s.writes
		s.set(mconf("50-infra"), "again")
		Expect(s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(written)})).To(
			Equal(ctrl.Result{RequeueAfter: ownwrites.MaxLag}))
		Expect(s.pool("infra")).To(Equal(written))
		Expect(s.writes).To(Equal(before))

		s.reconciler.written = ownwrites.Tracker{} // as after this time
		s.reconcile("infra")
		Expect(s.writes).To(BeNumerically(">", before))
		s.stalePool = nil
		Expect(string(s.rendered(s.reconcile("infra")).Spec.Config.Raw)).To(ContainSubstring("again"))
	})

	It("is not created a second time while the cache does not contain its rendered config", func() {
		s.set(mconf("50-infra"), "changed")
		s.reconcile("infra")
		rendered, written := renders(), s.writes
		s.hidesRendered = true
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
		Expect(s.writes).To(Equal(written))
		Expect(renders()).To(Equal(rendered))
	})

	It("is forgotten when it is deleted", func() {
		p := s.pool("infra")
		Expect(s.Delete(ctx(), p)).To(Succeed())
		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		Expect(err).NotTo(HaveOccurred())
		_, exists := s.reconciler.caches.Load(client.ObjectKeyFromObject(p))
		Expect(exists).To(BeFalse())
	})
})
