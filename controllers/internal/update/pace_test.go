package update

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

	It("are coalesced for twenty times as long as a look takes", func() {
		p := &pace{interval: time.Second}
		key, now := client.ObjectKey{Name: "a"}, time.Now()
		for took, want := range map[time.Duration]time.Duration{0: minInterval, 10 * time.Millisecond: 200 * time.Millisecond, time.Minute: time.Second} {
			now = now.Add(time.Minute)
			Expect(p.wait(key, now)).To(BeZero())
			p.took(key, took)
			Expect(p.wait(key, now)).To(Equal(want))
		}
	})

	It("cause one look at the pool, and one more after the interval", func(ctx SpecContext) {
		w := newWorld(1)
		w.reconciler.pace.interval = time.Minute
		Expect(w.reconcilePool(ctx)).To(Equal(ctrl.Result{}))
		writes := w.Writes
		w.render(ctx, "rendered-worker-2")
		w.reconciler.pace.took(poolKey, time.Minute)
		Expect(w.reconcilePool(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", time.Minute, 10*time.Second)))
		Expect(w.Writes).To(Equal(writes))
	})
})
