package update

import (
	"context"
	"fmt"
	"math/rand/v2"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// expectLimit fails if more hosts were told than the pool allows. It is called after each write.
func (w *world) expectLimit(ctx context.Context, maxUnavailable int) func() {
	return func() { Expect(len(w.told(ctx))).To(BeNumerically("<=", maxUnavailable)) }
}

var _ = Describe("A manager that crashes", func() {
	for n := 1; n <= 8; n++ {
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

	It("leaves hosts that can't be told any more, and the next manager waits for its turn", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.CrashesAt = func(o client.Object) bool { _, isNode := o.(*corev1.Node); return isNode }
		_, err := w.reconcilePool(ctx)
		Expect(err).To(MatchError(controllertest.ErrCrash))
		w.CrashesAt, w.Crashed = nil, false
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
		w.changeNode(ctx, 1, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		w.changeNode(ctx, 1, func(node *corev1.Node) { setReady(node, true) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})
})

// actsAfter lets a second manager act once, after the next n writes of the first one, and expects a limit of one host
// after each write. hasActed becomes true then.
func (w *world) actsAfter(ctx context.Context, n int, act func(second rollouts)) (hasActed *bool) {
	second := rollouts{w.newManager(func(_ context.Context, _ client.Object, write func() error) error { return write() })}
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
	for n := 1; n <= 6; n++ {
		It(fmt.Sprintf("never tell more hosts than allowed: the second one works after write %d of the first one", n), func(ctx SpecContext) {
			w := newWorld(3)
			w.adopt(ctx)
			w.render(ctx, "rendered-worker-2")
			w.actsAfter(ctx, n, func(second rollouts) { _, _ = second.Reconcile(ctx, ctrl.Request{NamespacedName: poolKey}) })
			w.settle(ctx)
			Expect(w.told(ctx)).To(HaveLen(1))
		})
	}

	It("are not misled by a cache that does not have the records of the other one yet", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		stale := &bootstrapv1.PoolbootConfigList{}
		Expect(w.management.List(ctx, stale)).To(Succeed())
		w.reconciler.Client = interceptor.NewClient(w.reconciler.Client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if configs, is := list.(*bootstrapv1.PoolbootConfigList); is {
					stale.DeepCopyInto(configs)
					return nil
				}
				return c.List(ctx, list, opts...)
			},
		})
		config := w.config(ctx, 1)
		config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = "rendered-worker-2", revisionOf(1, "rendered-worker-2")
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		w.afterWrite = w.expectLimit(ctx, 1)
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.told(ctx)).To(Equal([]int{1}), "the other one was first")
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-1")))
	})
})

// editPlaces changes the ConfigMap of places at random, if there is one, as the owner of the workload cluster can.
func (w *world) editPlaces(ctx context.Context, r *rand.Rand) {
	GinkgoHelper()
	places := &corev1.ConfigMap{}
	if err := w.workload.Get(ctx, workerPlaces, places); err != nil {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return
	}
	name := hostName(r.IntN(w.size(ctx)))
	values := []string{"", "garbage", "0", "1000000", w.node(ctx, r.IntN(w.size(ctx))).ResourceVersion}
	switch r.IntN(5) {
	case 0:
		Expect(w.workload.Delete(ctx, places)).To(Succeed())
		return
	case 1:
		places.Data = nil
	case 2:
		delete(places.Data, name)
	default:
		if places.Data == nil {
			places.Data = map[string]string{}
		}
		places.Data[[]string{name, "stranger"}[r.IntN(2)]] = values[r.IntN(len(values))]
	}
	Expect(w.workload.Update(ctx, places)).To(Succeed())
}

var _ = It("In any order of events, also if the places are edited, at most maxUnavailable hosts are told, at every write", func(ctx SpecContext) {
	r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) //nolint:gosec // not for secrets
	for range 5 {
		const hosts, maxUnavailable = 5, 2
		w := newWorld(hosts)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(maxUnavailable)) })
		w.afterWrite = w.expectLimit(ctx, maxUnavailable)
		for range 150 {
			w.CrashAt, w.Late, w.Crashed = 0, r.IntN(2) == 0, false
			if r.IntN(3) == 0 {
				w.CrashAt = w.Writes + 1 + r.IntN(4)
			}
			i := r.IntN(hosts)
			switch r.IntN(9) {
			case 8:
				w.editPlaces(ctx, r)
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
