package machineconfigpool

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The events of a pool", func() {
	It("are coalesced within an interval, and nothing is remembered for longer", func() {
		p := &pace{interval: time.Second}
		a, b := client.ObjectKey{Name: "a"}, client.ObjectKey{Name: "b"}
		now := time.Now()
		Expect(p.wait(a, now)).To(BeZero())
		Expect(p.wait(b, now)).To(BeZero())
		Expect(p.wait(a, now.Add(300*time.Millisecond))).To(Equal(700 * time.Millisecond))
		Expect(p.wait(a, now.Add(time.Second))).To(BeZero())
		Expect(p.wait(a, now.Add(time.Second))).To(Equal(time.Second))
		Expect(p.wait(a, now.Add(-time.Hour))).To(BeZero(), "the clock was set back")
		Expect(p.last).To(HaveLen(1))
	})

	It("cause one look at the pool, and one more after the interval", func() {
		infra := newPool("infra", "infra", 0)
		s := newFixture(newPool("worker", "worker", 0), infra)
		s.reconciler.pace.interval = time.Minute
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(infra)}
		Expect(s.reconciler.Reconcile(ctx(), request)).To(Equal(ctrl.Result{}))
		Expect(s.reconciler.Reconcile(ctx(), request)).To(HaveField("RequeueAfter", BeNumerically("~", time.Minute, 10*time.Second)))
	})
})
