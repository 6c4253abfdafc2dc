package update

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("A host whose root changes what its Node reports all the time", func() {
	const burst = 6

	It("causes a limited number of writes and events in the management cluster, and delays no other host", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		now := time.Now()
		w.reconciler.clock, w.reconciler.budget = func() time.Time { return now }, newBudget(burst)
		revision, flips := revisionOf(0, "rendered-worker-1"), 0
		flip := func() (ctrl.Result, error) {
			flips++
			w.reports(ctx, 0, []agentv1.State{agentv1.Done, agentv1.Degraded}[flips%2], revision, "evil")
			return w.reconcileHost(ctx, 0)
		}
		w.eventsOf("")
		for range 3 * burst {
			now = now.Add(time.Millisecond)
			Expect(flip()).Error().NotTo(HaveOccurred())
		}
		Expect(w.eventsOf("host-0")).To(HaveLen(burst))
		writes := w.Writes
		Expect(flip()).To(HaveField("RequeueAfter", And(BeNumerically(">", 0), BeNumerically("<=", hostInterval))))
		Expect(w.Writes).To(Equal(writes))

		By("reconciling another host")
		w.reports(ctx, 1, agentv1.Degraded, revisionOf(1, "rendered-worker-1"), "")
		Expect(w.reconcileHost(ctx, 1)).Error().NotTo(HaveOccurred())
		Expect(w.updated(ctx, 1).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))

		By("reporting its last state after a while")
		now = now.Add(hostInterval)
		w.reports(ctx, 0, agentv1.Degraded, revision, "the last one")
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("the last one"))
	})

	It("has its whole budget again after a while, also if the clock was set back", func() {
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
