package update

import (
	"context"
	"fmt"
	"math/rand/v2"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// staleManager is a manager whose caches of PoolbootConfigs and Nodes are as old as its last refreshes.
type staleManager struct {
	rollouts
	w       *world
	configs bootstrapv1.PoolbootConfigList
	nodes   corev1.NodeList
}

func newStaleManager(ctx context.Context, w *world) *staleManager {
	GinkgoHelper()
	m := &staleManager{w: w, rollouts: rollouts{w.newManager(w.Write)}}
	lists := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		switch list := list.(type) {
		case *bootstrapv1.PoolbootConfigList:
			m.configs.DeepCopyInto(list)
		case *corev1.NodeList:
			m.nodes.DeepCopyInto(list)
		default:
			return c.List(ctx, list, opts...)
		}
		return nil
	}}
	m.Client = interceptor.NewClient(m.Client.(client.WithWatch), lists)
	connection := m.ClusterCache.(*controllertest.ClusterCache)
	workload, err := connection.GetClient(ctx, clusterKey)
	Expect(err).NotTo(HaveOccurred())
	clusters := controllertest.NewClusterCache(interceptor.NewClient(workload.(client.WithWatch), lists), clusterKey)
	clusters.RESTConfig = connection.RESTConfig
	m.ClusterCache = clusters
	m.refreshConfigs(ctx)
	m.refreshNodes(ctx)
	return m
}

func (m *staleManager) refreshConfigs(ctx context.Context) {
	GinkgoHelper()
	Expect(m.w.management.List(ctx, &m.configs)).To(Succeed())
}

func (m *staleManager) refreshNodes(ctx context.Context) {
	GinkgoHelper()
	Expect(m.w.workload.List(ctx, &m.nodes)).To(Succeed())
}

var _ = Describe("A manager whose cache of PoolbootConfigs is older than that of Nodes", func() {
	It("does not tell a host that begins its update what it has", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		m := newStaleManager(ctx, w)
		w.render(ctx, "rendered-worker-2")
		Expect(m.Reconcile(ctx, ctrl.Request{NamespacedName: poolKey})).Error().NotTo(HaveOccurred())
		Expect(w.told(ctx)).To(Equal([]int{0}))
		m.refreshNodes(ctx)
		w.afterWrite = func() { Expect(w.told(ctx)).To(Equal([]int{0})) }
		Expect(m.Reconcile(ctx, ctrl.Request{NamespacedName: poolKey})).Error().NotTo(HaveOccurred())
	})
})

var _ = DescribeTable("Two managers with stale caches tell at most maxUnavailable hosts", func(ctx SpecContext, seed func() uint64) {
	r := rand.New(rand.NewPCG(seed(), 1)) //nolint:gosec // not for secrets
	for range 3 {
		const hosts, maxUnavailable = 5, 2
		w := newWorld(hosts)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(maxUnavailable)) })
		managers := []*staleManager{newStaleManager(ctx, w), newStaleManager(ctx, w)}
		depth, completed := 0, 0
		step := func() {
			m, i := managers[r.IntN(2)], r.IntN(hosts)
			switch r.IntN(8) {
			case 0:
				w.render(ctx, fmt.Sprintf("rendered-worker-%d", 1+r.IntN(3)))
			case 1, 2:
				_, _ = m.Reconcile(ctx, ctrl.Request{NamespacedName: poolKey})
			case 3:
				m.refreshConfigs(ctx)
			case 4, 5:
				m.refreshNodes(ctx)
			case 6:
				states := []agentv1.State{agentv1.Applying, agentv1.Rebooting, agentv1.Done, agentv1.Done}
				state := states[r.IntN(len(states))]
				if state == agentv1.Done {
					completed++
				}
				w.reports(ctx, i, state, w.node(ctx, i).Annotations[agentv1.DesiredAnnotation], "")
			case 7:
				_, _ = w.reconcileHost(ctx, i)
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
		for range 200 {
			step()
			w.expectLimit(ctx, maxUnavailable)()
		}
		Expect(completed).NotTo(BeZero())
	}
},
	Entry("when a Node returns to a revision that the cache of a manager still has", func() uint64 { return 2 }),
	Entry("in any order of events", func() uint64 { return uint64(GinkgoRandomSeed()) }),
)
