package host

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The budget of a host", func() {
	const burst = 6

	It("limits the writes in the management cluster if the workload cluster answers each request with another error", func(ctx SpecContext) {
		s := newSite()
		s.sendRequest(ctx)
		s.patches, s.reconciler.budget = 0, newBudget(burst)
		var last ctrl.Result
		for i := range 3 * burst {
			s.answers = fmt.Errorf("webhook failed: connection from port %d reset", i)
			last, _ = s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		}
		Expect(s.patches).To(Equal(burst))
		Expect(last.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", hostInterval)))
	})

	It("does not delay the deletion of its PoolbootConfig", func(ctx SpecContext) {
		s := newSite()
		config, err := s.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		s.reconciler.budget = newBudget(1)
		Expect(s.reconciler.budget.wait(key, time.Now())).To(BeZero())
		Expect(s.Delete(ctx, config)).To(Succeed())
		Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).To(BeZero())
		Expect(client.IgnoreNotFound(s.Get(ctx, key, config))).To(Succeed())
		Expect(s.Get(ctx, key, config)).NotTo(Succeed())
	})

	It("is whole again after a while, also if the clock was set back", func() {
		b, host, now := newBudget(burst), client.ObjectKey{Name: "a"}, time.Now()
		spend := func() {
			GinkgoHelper()
			for range burst {
				Expect(b.wait(host, now)).To(BeZero())
			}
			Expect(b.wait(host, now)).To(Equal(hostInterval))
		}
		spend()
		now = now.Add(burst * hostInterval)
		spend()
		now = now.Add(-24 * time.Hour)
		Expect(b.wait(host, now)).To(BeZero())
	})
})
