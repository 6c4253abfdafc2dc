package update

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// newNode creates a Node of a pool that is no Node of a host.
func (w *world) newNode(ctx context.Context, name, role string, annotations map[string]string) *corev1.Node {
	GinkgoHelper()
	node := controllertest.NewNode(name, role)
	node.Annotations = annotations
	Expect(w.workload.Create(ctx, node)).To(Succeed())
	return node
}

var _ = Describe("The ConfigMap of places", func() {
	// edits are what the owner of the workload cluster can write into it while host 0 is being updated.
	edits := map[string]func(context.Context, *world, *corev1.ConfigMap){
		"without an entry":        func(_ context.Context, _ *world, c *corev1.ConfigMap) { c.Data = nil },
		"without the one of host": func(_ context.Context, _ *world, c *corev1.ConfigMap) { c.Data = map[string]string{hostName(2): "1"} },
		"with values that are no versions": func(_ context.Context, _ *world, c *corev1.ConfigMap) {
			c.Data = map[string]string{hostName(0): "garbage", hostName(1): "-1", hostName(2): "", "other": "1.5"}
		},
		"with versions of the future": func(_ context.Context, _ *world, c *corev1.ConfigMap) {
			c.Data = map[string]string{hostName(0): strings.Repeat("9", 30), hostName(1): strings.Repeat("9", 30)}
		},
		"with a huge value": func(_ context.Context, _ *world, c *corev1.ConfigMap) {
			c.Data[hostName(1)] = strings.Repeat("9", 500_000)
		},
		"with a binary entry": func(_ context.Context, _ *world, c *corev1.ConfigMap) {
			c.BinaryData = map[string][]byte{hostName(1): []byte("1")}
		},
		"with keys that are no Nodes": func(_ context.Context, _ *world, c *corev1.ConfigMap) { c.Data["_"], c.Data["A..b"] = "1", "1" },
		"with too many entries": func(_ context.Context, _ *world, c *corev1.ConfigMap) {
			for i := range 300 {
				c.Data[fmt.Sprintf("n%d", i)] = "1"
			}
		},
		"with Nodes of another pool and of another Cluster": func(ctx context.Context, w *world, c *corev1.ConfigMap) {
			other := controllertest.NewPool(clusterKey, "infra")
			other.UID = "infra-uid"
			Expect(w.management.Create(ctx, other)).To(Succeed())
			foreign := controllertest.NewConfig(client.ObjectKey{Namespace: "far", Name: "other"}, "foreign")
			Expect(w.management.Create(ctx, foreign)).To(Succeed())
			for _, node := range []*corev1.Node{
				w.newNode(ctx, "of-infra", "infra", nil),
				w.newNode(ctx, "of-nobody", poolv1.RoleWorker, nil),
				w.newNode(ctx, "of-another-cluster", poolv1.RoleWorker, map[string]string{poolv1.NodeConfigAnnotation: "far/foreign"}),
			} {
				c.Data[node.Name] = node.ResourceVersion
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		for _, isNew := range []bool{false, true} {
			It(fmt.Sprintf("%s neither stops the pool nor lets more hosts begin than allowed: the manager is new: %t", name, isNew), func(ctx SpecContext) {
				w := newWorld(3)
				w.adopt(ctx)
				w.render(ctx, "rendered-worker-2")
				w.settle(ctx)
				places := w.places(ctx)
				edits[name](ctx, w, places)
				Expect(w.workload.Update(ctx, places)).To(Succeed())
				if isNew {
					w.reconciler = w.newManager(w.Write)
				}
				w.afterWrite = w.expectLimit(ctx, 1)
				for i := range 3 {
					w.settle(ctx)
					Expect(w.told(ctx)).To(Equal([]int{i}))
					w.complete(ctx, i)
				}
				w.settle(ctx)
				Expect(w.told(ctx)).To(BeEmpty())
				Expect(w.places(ctx)).To(And(HaveField("Data", And(HaveLen(1), HaveKey(hostName(2)))), HaveField("BinaryData", BeEmpty())))
			})
		}
	}

	It("costs few requests however many entries it has", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		places := w.places(ctx)
		edits["with too many entries"](ctx, w, places)
		Expect(w.workload.Update(ctx, places)).To(Succeed())
		requests := 0
		count := func() { requests++ }
		w.workload = interceptor.NewClient(w.workload, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				count()
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				count()
				return c.List(ctx, list, opts...)
			},
		})
		w.reconciler = w.newManager(w.Write)
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(requests).To(BeNumerically("<", 10))
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("is created although no host may begin, so that places are gathered once", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.reconciler.gateReader = func(context.Context, client.ObjectKey) (client.Reader, error) { return w.workload, nil }
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Status.Configuration.Name = "rendered-worker-2"
			p.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "closed", Expression: "false",
				ObjectRef: poolv1.UpdateGateObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "default"}}}
		})
		lists := w.countLiveLists()
		for range 3 {
			Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		}
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(*lists).To(Equal(1))
		Expect(w.places(ctx).Data).To(BeEmpty())
	})
})

var _ = It("A host that can't be adopted gets no other revision, also if all hosts are read again for the first place", func(ctx SpecContext) {
	w := newWorld(2)
	w.adopt(ctx)
	config := w.config(ctx, 0)
	config.Status.Update = bootstrapv1.UpdateStatus{}
	Expect(w.management.Status().Update(ctx, config)).To(Succeed())
	w.changeNode(ctx, 0, func(node *corev1.Node) {
		node.Annotations = map[string]string{
			poolv1.NodeConfigAnnotation: node.Annotations[poolv1.NodeConfigAnnotation], agentv1.ReportVersionAnnotation: "1", agentv1.AgentAnnotation: "v0.1.0"}
	})
	w.render(ctx, "rendered-worker-2")
	live := w.reconciler.APIReader
	w.reconciler.APIReader = interceptor.NewClient(w.management, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, isSecret := o.(*corev1.Secret); isSecret && strings.HasSuffix(key.Name, string(config.UID)) {
				return errors.New("the API server is busy")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	_, err := w.reconcilePool(ctx)
	Expect(err).To(MatchError(ContainSubstring("busy")))
	Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(BeEmpty())
	Expect(w.told(ctx)).To(Equal([]int{1}), "one host does not stop the others")
	w.reconciler.APIReader = live
	w.settle(ctx)
	Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-1")))
})
