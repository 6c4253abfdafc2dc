package update

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// expectLimit fails if more hosts were told than the pool allows. It is called after each write.
func (w *world) expectLimit(ctx context.Context, maxUnavailable int) func() {
	return func() { Expect(len(w.told(ctx))).To(BeNumerically("<=", maxUnavailable)) }
}

var _ = Describe("A manager that crashes", func() {
	for n := 1; n <= 10; n++ {
		for _, late := range []bool{false, true} {
			It(fmt.Sprintf("never tells more hosts than allowed, and goes on later: write %d, which takes effect: %t", n, late), func(ctx SpecContext) {
				w := newWorld(4)
				w.adopt(ctx)
				w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
					p.Spec.MaxUnavailable, p.Status.Configuration.Name = ptr.To(intstr.FromInt32(2)), "rendered-worker-2"
				})
				w.afterWrite = w.expectLimit(ctx, 2)
				w.CrashAt, w.Late = w.Writes+n, late
				w.settle(ctx)
				Expect(w.told(ctx)).To(Equal([]int{0, 1}))
				for i := range 4 {
					w.complete(ctx, i)
					w.settle(ctx)
				}
				Expect(w.told(ctx)).To(BeEmpty())
				for i := range 4 {
					Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
				}
			})
		}
	}

	It("leaves a host that has its slot, which is told next, and no other host", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(Equal([]string{hostName(0)}))
		w.CrashesAt = func(o client.Object) bool { _, isNode := o.(*corev1.Node); return isNode }
		_, err := w.reconcileHost(ctx, 0)
		Expect(err).To(MatchError(controllertest.ErrCrash))
		w.CrashesAt, w.Crashed = nil, false
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
		w.changeNode(ctx, 1, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "a slot is a beginning")
	})
})

// actsAfter lets a second manager act once, after the next n writes of the first one, and expects a limit of one host
// after each write. hasActed becomes true then.
func (w *world) actsAfter(ctx context.Context, n int, act func(second *manager)) (hasActed *bool) {
	second := w.newManager(func(_ context.Context, _ client.Object, write func() error) error { return write() })
	first, hasActed := w.Writes, new(bool)
	w.afterWrite = func() {
		w.expectLimit(ctx, 1)()
		if w.Writes-first == n && !*hasActed {
			*hasActed = true
			act(second)
		}
	}
	return hasActed
}

var _ = Describe("Two managers at the same time", func() {
	for n := 1; n <= 8; n++ {
		It(fmt.Sprintf("never tell more hosts than allowed: the second one works after write %d of the first one", n), func(ctx SpecContext) {
			w := newWorld(3)
			w.adopt(ctx)
			w.render(ctx, "rendered-worker-2")
			w.actsAfter(ctx, n, func(second *manager) {
				_, _ = second.reconcilePool(ctx, poolKey)
				for i := range 3 {
					_, _ = second.Reconcile(ctx, requestFor(i))
				}
			})
			w.settle(ctx)
			Expect(w.told(ctx)).To(HaveLen(1))
		})
	}
})

// editSlots changes the slots of the pool at random, as a user who can write its status can. It removes no slot whose
// host is about to be told: that is up to the user who does it.
func (w *world) editSlots(ctx context.Context, r *rand.Rand) {
	GinkgoHelper()
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
		name := []string{hostName(r.IntN(5)), "stranger"}[r.IntN(2)]
		switch slots := &p.Status.Slots; r.IntN(4) {
		case 0:
			*slots, p.Status.SlotsOpenTime = nil, nil
		case 1:
			*slots = append(*slots, poolv1.UpdateSlot{ID: "same", Host: name, Revision: "none"})
		case 2:
			*slots = append(*slots, *slots...)
		case 3:
			*slots = append(*slots, poolv1.UpdateSlot{ID: rollout.NewSlotID(), Host: name, Revision: revisionOf(0, "rendered-worker-1")})
		}
	})
}

var _ = It("In any order of events, also if the slots are edited, no more hosts are told than have slots, and these stay within the limit", func(ctx SpecContext) {
	r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) //nolint:gosec // not for secrets
	for range 5 {
		const hosts, maxUnavailable = 5, 2
		w := newWorld(hosts)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(maxUnavailable)) })
		added := 0 // hosts that a user has given slots
		w.afterWrite = func() { w.expectLimit(ctx, maxUnavailable+added)() }
		for range 150 {
			w.CrashAt, w.Late, w.Crashed = 0, r.IntN(2) == 0, false
			if r.IntN(3) == 0 {
				w.CrashAt = w.Writes + 1 + r.IntN(4)
			}
			i := r.IntN(hosts)
			switch r.IntN(10) {
			case 9:
				w.passed += 20 * time.Second
			case 8:
				before := len(w.slots(ctx))
				w.editSlots(ctx, r)
				added += max(len(w.slots(ctx))-before, 0)
			case 0:
				w.render(ctx, fmt.Sprintf("rendered-worker-%d", 1+r.IntN(3)))
			case 1, 2, 3:
				_, _ = w.reconcilePool(ctx)
			case 4, 5:
				_, _ = w.reconcileHost(ctx, i)
			case 6:
				states := []agentv1.State{agentv1.Draining, agentv1.Applying, agentv1.Verifying, agentv1.Done, agentv1.Done}
				w.reports(ctx, i, states[r.IntN(len(states))], w.node(ctx, i).Annotations[agentv1.DesiredAnnotation], "")
			case 7:
				w.changeNode(ctx, i, func(node *corev1.Node) { setReady(node, r.IntN(4) > 0) })
			}
		}
	}
})
