package update

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// staleManager is a manager whose caches of PoolbootConfigs, pools and Nodes are as old as its last refreshes.
type staleManager struct {
	*manager
	w       *world
	configs bootstrapv1.PoolbootConfigList
	pools   poolv1.MachineConfigPoolList
	nodes   corev1.NodeList
}

func newStaleManager(ctx context.Context, w *world) *staleManager {
	GinkgoHelper()
	m := &staleManager{w: w, manager: w.newManager(w.Write)}
	stale := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		switch list := list.(type) {
		case *bootstrapv1.PoolbootConfigList:
			m.configs.DeepCopyInto(list)
		case *poolv1.MachineConfigPoolList:
			m.pools.DeepCopyInto(list)
		case *corev1.NodeList:
			m.nodes.DeepCopyInto(list)
		default:
			return c.List(ctx, list, opts...)
		}
		return nil
	}, Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
		switch object := object.(type) {
		case *bootstrapv1.PoolbootConfig:
			return getFrom(m.configs.Items, key, object)
		case *poolv1.MachineConfigPool:
			return getFrom(m.pools.Items, key, object)
		case *corev1.Node:
			return getFrom(m.nodes.Items, key, object)
		}
		return c.Get(ctx, key, object, opts...)
	}}
	m.Client = interceptor.NewClient(m.Client.(client.WithWatch), stale)
	connection := m.ClusterCache.(*controllertest.ClusterCache)
	live, err := connection.GetUncachedClient(ctx, clusterKey)
	Expect(err).NotTo(HaveOccurred())
	clusters := controllertest.NewClusterCache(interceptor.NewClient(live.(client.WithWatch), stale), clusterKey)
	clusters.RESTConfig, clusters.Live = connection.RESTConfig, live
	m.ClusterCache = clusters
	m.refresh(ctx)
	return m
}

// getFrom answers from the items of a list.
func getFrom[T any, Object interface {
	*T
	client.Object
}](items []T, key client.ObjectKey, into Object) error {
	for i := range items {
		if client.ObjectKeyFromObject(Object(&items[i])) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(Object(&items[i]).DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

func (m *staleManager) refresh(ctx context.Context) {
	GinkgoHelper()
	Expect(m.w.management.List(ctx, &m.configs)).To(Succeed())
	Expect(m.w.management.List(ctx, &m.pools)).To(Succeed())
	Expect(m.w.workload.List(ctx, &m.nodes)).To(Succeed())
}

var _ = Describe("A manager with caches from before an update", func() {
	It("neither gives slots nor tells hosts", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		m := newStaleManager(ctx, w)
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.slots(ctx)).To(Equal([]string{hostName(1)}))
		w.afterWrite = func() { Expect(w.told(ctx)).To(Equal([]int{1})) }
		_, _ = m.reconcilePool(ctx, poolKey)
		for i := range 3 {
			_, _ = m.Reconcile(ctx, requestFor(i))
		}
		Expect(w.slots(ctx)).To(Equal([]string{hostName(1)}))
	})

	It("does not tell a host by a slot that is free since, also if its other caches are new", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		m := newStaleManager(ctx, w) // host 0 has a slot
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		pools := m.pools
		m.refresh(ctx)
		m.pools = pools
		_, _ = m.Reconcile(ctx, requestFor(0))
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(w.config(ctx, 0).Status.Update.Slot).To(BeEmpty())
	})
})

var _ = DescribeTable("Two managers with stale caches tell at most maxUnavailable hosts", func(ctx SpecContext, seed func() uint64) {
	r := rand.New(rand.NewPCG(seed(), 1)) //nolint:gosec // not for secrets
	const hosts, maxUnavailable = 5, 2
	w := newWorld(hosts)
	w.adopt(ctx)
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(maxUnavailable)) })
	managers := []*staleManager{newStaleManager(ctx, w), newStaleManager(ctx, w)}
	depth, completed := 0, 0
	step := func() {
		m, i := managers[r.IntN(2)], r.IntN(hosts)
		switch r.IntN(15) {
		case 0:
			w.render(ctx, fmt.Sprintf("rendered-worker-%d", 1+r.IntN(3)))
		case 1, 2:
			_, _ = m.reconcilePool(ctx, poolKey)
		case 3:
			Expect(w.management.List(ctx, &m.configs)).To(Succeed())
		case 4:
			Expect(w.workload.List(ctx, &m.nodes)).To(Succeed())
		case 5:
			Expect(w.management.List(ctx, &m.pools)).To(Succeed())
		case 6, 7:
			states := []agentv1.State{agentv1.Applying, agentv1.Rebooting, agentv1.Done, agentv1.Done}
			state := states[r.IntN(len(states))]
			if told := w.told(ctx); len(told) > 0 {
				i = told[r.IntN(len(told))]
			}
			told := w.node(ctx, i).Annotations[agentv1.DesiredAnnotation]
			if state == agentv1.Done && told != w.node(ctx, i).Annotations[agentv1.CurrentAnnotation] {
				completed++
			}
			w.reports(ctx, i, state, told, "")
		case 8, 9, 10:
			_, _ = m.Reconcile(ctx, requestFor(i))
		case 12, 13, 14:
			m.refresh(ctx)
		case 11:
			if depth == 0 && r.IntN(10) == 0 { // the list is lost, and no manager writes any more what it began before
				w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.Slots, p.Status.SlotsOpenTime = nil, nil })
				for _, m := range managers {
					m.refresh(ctx)
				}
			}
			w.passed += 20 * time.Second
		}
	}
	w.afterWrite = func() {
		w.expectLimit(ctx, maxUnavailable)()
		if depth == 0 && r.IntN(4) == 0 { // a manager stops between two writes
			depth++
			for range r.IntN(5) {
				step()
			}
			depth--
		}
	}
	for range 400 {
		step()
		w.expectLimit(ctx, maxUnavailable)()
	}
	By("letting all caches be current: all hosts are updated in the end")
	w.render(ctx, "rendered-worker-4")
	w.afterWrite = w.expectLimit(ctx, maxUnavailable)
	for range 30 {
		for _, m := range managers {
			w.passed += 20 * time.Second
			m.refresh(ctx)
			_, _ = m.reconcilePool(ctx, poolKey)
			for i := range hosts {
				m.refresh(ctx)
				_, _ = m.Reconcile(ctx, requestFor(i))
			}
		}
		for i := range hosts {
			w.complete(ctx, i)
		}
	}
	for i := range hosts {
		Expect(w.node(ctx, i).Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, revisionOf(i, "rendered-worker-4")), "%+v %+v", w.config(ctx, i).Status, w.node(ctx, i).Annotations)
	}
	Expect(w.slots(ctx)).To(BeEmpty())
},
	Entry("when a Node returns to a revision that the cache of a manager still has", func() uint64 { return 2 }),
	Entry("in any order of events", func() uint64 { return uint64(GinkgoRandomSeed()) }),
)
