package update

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// countLiveLists counts the lists that the reconcilers read from the API server of the management cluster.
func (w *world) countLiveLists() *int {
	count := new(int)
	w.reconciler.APIReader = interceptor.NewClient(w.management, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*count++
			return c.List(ctx, list, opts...)
		},
	})
	return count
}

var _ = Describe("All records of a cluster are read from the API server", func() {
	It("once to build the slots, and for no other host and no other manager", func(ctx SpecContext) {
		w := newWorld(3)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.SlotsOpenTime = nil })
		lists := w.countLiveLists()
		w.adopt(ctx)
		Expect(*lists).To(Equal(1))
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		w.passed += rollout.SlotsPause
		w.settle(ctx)
		Expect(w.told(ctx)).To(HaveLen(1))
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(*lists).To(Equal(1))

		w.reconciler = w.newManager(w.Write)
		lists = w.countLiveLists()
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
		Expect(*lists).To(BeZero())
	})
})

// lister answers lists from memory without copies, as the cache of a manager does.
type lister struct {
	configs  []bootstrapv1.PoolbootConfig
	machines []clusterv1.Machine
	nodes    []corev1.Node
}

func (l *lister) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *bootstrapv1.PoolbootConfigList:
		list.Items = l.configs
	case *clusterv1.MachineList:
		list.Items = l.machines
	case *corev1.NodeList:
		list.Items = l.nodes
	default:
		return c.List(ctx, list, opts...)
	}
	return nil
}

// BenchmarkPoolEvent measures one look at a pool in which a host is being updated and all others wait. Within
// poolInterval, all events of a pool cause one look.
func BenchmarkPoolEvent(b *testing.B) {
	RegisterFailHandler(func(message string, _ ...int) { b.Fatal(message) })
	for _, size := range []int{1000, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			ctx := b.Context()
			w, l := newWorld(1), &lister{}
			w.addOtherPools(ctx)
			w.render(ctx, "rendered-worker-2")
			for i := range size {
				config, machine, node := newObjects(hostName(i))
				revision := revisionOf(i, "rendered-worker-1")
				config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = "rendered-worker-1", revision
				node.Annotations[agentv1.DesiredAnnotation], node.Annotations[agentv1.CurrentAnnotation], node.Annotations[agentv1.TargetAnnotation] = revision, revision, revision
				node.Annotations[agentv1.StateAnnotation] = string(agentv1.Done)
				l.configs, l.machines, l.nodes = append(l.configs, *config), append(l.machines, *machine), append(l.nodes, *node)
			}
			told := revisionOf(0, "rendered-worker-2")
			l.configs[0].Status.Update.Desired.Name, l.configs[0].Status.Update.DesiredRevision = "rendered-worker-2", told
			metav1.SetMetaDataAnnotation(&l.nodes[0].ObjectMeta, agentv1.DesiredAnnotation, told)
			requests := w.countLiveLists()
			w.reconciler.Client = interceptor.NewClient(w.management, interceptor.Funcs{List: l.list})
			clusters := controllertest.NewClusterCache(interceptor.NewClient(w.workload, interceptor.Funcs{List: l.list}), clusterKey)
			clusters.RESTConfig = w.reconciler.ClusterCache.(*controllertest.ClusterCache).RESTConfig
			w.reconciler.ClusterCache = clusters
			w.reconciler.revisions = lru.New(maxRevisions)
			if _, err := w.reconcilePool(ctx); err != nil { // determines all targets
				b.Fatal(err)
			}
			b.ResetTimer()
			for b.Loop() {
				if _, err := w.reconcilePool(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(*requests+w.Writes)/float64(b.N), "requests/op")
		})
	}
}
