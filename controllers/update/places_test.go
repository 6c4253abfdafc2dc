package update

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var workerPlaces = client.ObjectKey{Namespace: placesNamespace, Name: "poolboot-rollout-worker." + clusterKey.Name}

// places returns the ConfigMap with the places that are taken.
func (w *world) places(ctx context.Context) *corev1.ConfigMap {
	GinkgoHelper()
	configMap := &corev1.ConfigMap{}
	Expect(w.workload.Get(ctx, workerPlaces, configMap)).To(Succeed())
	return configMap
}

// exclude makes a user exclude a host from updates.
func (w *world) exclude(ctx context.Context, i int) {
	GinkgoHelper()
	config := w.config(ctx, i)
	config.Annotations[clusterv1.PausedAnnotation] = ""
	Expect(w.management.Update(ctx, config)).To(Succeed())
}

var _ = Describe("The places of a pool", func() {
	// updating returns a world in which host 0 is being updated, and a manager whose caches are from before that. If
	// they are older, they do not have the version of the Node at which the host was told.
	updating := func(ctx context.Context, isOlder bool) (*world, *staleManager) {
		GinkgoHelper()
		w := newWorld(3)
		w.adopt(ctx)
		stale := newStaleManager(ctx, w)
		if isOlder {
			w.changeNode(ctx, 0, func(node *corev1.Node) { node.Labels["a"] = "b" })
		}
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		return w, stale
	}
	look := func(ctx context.Context, r rollouts) {
		GinkgoHelper()
		for range 5 {
			_, _ = r.Reconcile(ctx, ctrl.Request{NamespacedName: poolKey})
		}
	}

	It("are taken with the version of a Node at which its host is told, and free with the next write", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		version := w.node(ctx, 0).ResourceVersion
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.places(ctx).Data).To(Equal(map[string]string{hostName(0): version}))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.places(ctx).Data).To(HaveKey(hostName(1)))
		Expect(w.places(ctx).Data).NotTo(HaveKey(hostName(0)))
	})

	for _, isOlder := range []bool{false, true} {
		It(fmt.Sprintf("count for a manager whose caches are from before, and after the updates of their hosts failed, too: its caches are older: %t", isOlder), func(ctx SpecContext) {
			w, stale := updating(ctx, isOlder)
			look(ctx, stale.rollouts)
			Expect(w.told(ctx)).To(Equal([]int{0}))
			w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "")
			w.settle(ctx)
			look(ctx, stale.rollouts)
			Expect(w.told(ctx)).To(Equal([]int{0}))
		})
	}

	It("of hosts whose update failed stay taken while others take places, and count for a manager whose caches are from before", func(ctx SpecContext) {
		w := newWorld(4)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
		w.adopt(ctx)
		stale := newStaleManager(ctx, w)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 1}))
		w.reports(ctx, 1, agentv1.Degraded, revisionOf(1, "rendered-worker-2"), "")
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1, 2}))
		Expect(w.places(ctx).Data).To(And(HaveKey(hostName(1)), HaveKey(hostName(2)), HaveLen(2)))
		for i := range 2 { // otherwise the stale manager tries to tell these at their old versions
			w.exclude(ctx, i)
		}
		stale.refreshConfigs(ctx)
		look(ctx, stale.rollouts)
		Expect(w.told(ctx)).To(Equal([]int{1, 2}))
	})

	It("are free for such a manager too when their hosts are done", func(ctx SpecContext) {
		w, stale := updating(ctx, true)
		w.complete(ctx, 0)
		for range 3 {
			Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		}
		stale.refreshConfigs(ctx)
		look(ctx, stale.rollouts)
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("can't be taken by a manager that does not know what another one has written", func(ctx SpecContext) {
		w, stale := updating(ctx, false)
		w.complete(ctx, 0)
		stale.refreshConfigs(ctx)
		stale.refreshNodes(ctx)
		Expect(stale.readPlacesOf(ctx)).To(HaveKey(hostName(0)))
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.exclude(ctx, 1) // the stale manager chooses host 2
		stale.refreshConfigs(ctx)
		_, _ = stale.Reconcile(ctx, ctrl.Request{NamespacedName: poolKey})
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("are those of all hosts in an update if the ConfigMap is lost", func(ctx SpecContext) {
		w, stale := updating(ctx, false)
		Expect(w.workload.Delete(ctx, w.places(ctx))).To(Succeed())
		look(ctx, stale.rollouts)
		look(ctx, rollouts{w.newManager(w.Write)})
		Expect(w.told(ctx)).To(Equal([]int{0}))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("of Nodes that do not exist any more, or have left the pool, are free", func(ctx SpecContext) {
		w, _ := updating(ctx, false)
		w.complete(ctx, 0)
		w.exclude(ctx, 1)
		stranger := &corev1.Node{}
		stranger.Name = "stranger"
		Expect(w.workload.Create(ctx, stranger)).To(Succeed())
		places := w.places(ctx)
		places.Data["gone"], places.Data["stranger"] = "5", stranger.ResourceVersion
		Expect(w.workload.Update(ctx, places)).To(Succeed())
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{2}))
		Expect(w.places(ctx).Data).To(And(HaveLen(1), HaveKey(hostName(2))))
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(stranger), stranger)).To(Succeed())
		Expect(stranger.Annotations).To(HaveKey(agentv1.WithdrawnAnnotation), "no manager can tell it any more")
	})

	DescribeTable("of a Node that is no Node of a host of the pool", func(ctx SpecContext, isKept bool, change func(*corev1.Node), objects ...client.Object) {
		w := newWorld(2)
		w.adopt(ctx)
		for _, o := range objects {
			Expect(w.management.Create(ctx, o)).To(Succeed())
		}
		stranger := controllertest.NewNode("stranger", poolv1.RoleWorker)
		if change != nil {
			change(stranger)
		}
		Expect(w.workload.Create(ctx, stranger)).To(Succeed())
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		places := w.places(ctx)
		places.Data = map[string]string{"stranger": "7"} // any other version
		Expect(w.workload.Update(ctx, places)).To(Succeed())
		w.restart()
		w.settle(ctx)
		Expect(slices.Contains(w.told(ctx), 1)).To(Equal(!isKept))
		_, has := w.places(ctx).Data["stranger"]
		Expect(has).To(Equal(isKept))
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(stranger), stranger)).To(Succeed())
		Expect(stranger.Annotations).NotTo(HaveKey(agentv1.WithdrawnAnnotation), "it can't be told at the version of the place")
	},
		Entry("and names no record is free", false, nil),
		Entry("and names a record that does not exist is free", false, namesRecord(clusterKey.Namespace, "other")),
		Entry("and names the record of another Cluster is free", false, namesRecord(clusterKey.Namespace, "other"),
			controllertest.NewConfig(client.ObjectKey{Namespace: clusterKey.Namespace, Name: "elsewhere"}, "other")),
		Entry("and names a record of the Cluster, whose host can be one of the pool, stays taken", true, namesRecord(clusterKey.Namespace, "other"),
			controllertest.NewConfig(clusterKey, "other")),
		Entry("and is in another pool, is free", false, func(node *corev1.Node) {
			namesRecord(clusterKey.Namespace, "other")(node)
			node.Labels = map[string]string{poolv1.NodeRoleLabelPrefix + "control-plane": ""}
		}, controllertest.NewConfig(clusterKey, "other")),
	)

	for n := 1; n <= 5; n++ {
		It(fmt.Sprintf("go to another host if it is withdrawn, and not to both: a manager stops after write %d and goes on later", n), func(ctx SpecContext) {
			w := newWorld(2)
			w.adopt(ctx)
			w.render(ctx, "rendered-worker-2")
			hasActed := w.actsAfter(ctx, n, func(second rollouts) {
				w.exclude(ctx, 0)
				look(ctx, second)
				if n < 5 { // the last one tells host 0
					Expect(w.told(ctx)).To(Equal([]int{1}))
				}
			})
			_, _ = w.reconcilePool(ctx)
			Expect(*hasActed).To(BeTrue())
			w.settle(ctx)
			Expect(w.told(ctx)).To(HaveLen(1))
		})
	}
})

// readPlacesOf makes the manager read the places, and returns them.
func (m *staleManager) readPlacesOf(ctx context.Context) map[string]string {
	GinkgoHelper()
	s, err := m.newScope(ctx, poolKey)
	Expect(err).NotTo(HaveOccurred())
	Expect(m.gather(ctx, s)).To(Succeed())
	Expect(m.readPlaces(ctx, s)).To(Succeed())
	return m.places.get(poolKey).taken
}

// namesRecord returns a change of a Node: it names the PoolbootConfig that it was registered for.
func namesRecord(namespace, name string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeConfigAnnotation, namespace+"/"+name)
	}
}
