package update

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/drainhook"
)

// newControlPlane returns a world whose hosts have a control plane with stacked etcd, and are adopted.
func newControlPlane(ctx context.Context, hosts int) *world {
	GinkgoHelper()
	w := newWorld(hosts)
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "cp"}}
	for _, healthy := range []string{controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition} {
		conditions.Set(kcp, metav1.Condition{Type: healthy, Status: metav1.ConditionTrue, Reason: "Healthy"})
	}
	Expect(w.management.Create(ctx, kcp)).To(Succeed())
	cluster := &clusterv1.Cluster{}
	Expect(w.management.Get(ctx, clusterKey, cluster)).To(Succeed())
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: "cp"}
	Expect(w.management.Update(ctx, cluster)).To(Succeed())
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.PoolRole = poolv1.RoleControlPlane })
	for i := range hosts {
		config, machine := w.config(ctx, i), w.machine(ctx, i)
		config.Spec.PoolRole = poolv1.RoleControlPlane
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: hostName(i), Adoption: bootstrapv1.AdoptionFollow}
		status := config.Status
		Expect(w.management.Update(ctx, config)).To(Succeed())
		config.Status, config.Status.PoolRole = status, poolv1.RoleControlPlane
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		machine.Status.NodeRef.Name = hostName(i)
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		w.changeNode(ctx, i, func(node *corev1.Node) { node.Labels[poolv1.NodeRoleLabelPrefix+poolv1.RoleControlPlane] = "" })
		Expect(w.workload.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: hostName(i)},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0)}}})).To(Succeed())
		for _, component := range []string{"etcd", "kube-apiserver"} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: component + "-" + hostName(i),
				Labels: map[string]string{"component": component, "tier": "control-plane"}, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: hostName(i), UID: "uid", Controller: ptr.To(true)}}}}
			pod.Spec.NodeName = hostName(i)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			Expect(w.workload.Create(ctx, pod)).To(Succeed())
		}
	}
	w.adopt(ctx)
	return w
}

// renewLease reads an object, and before that renews a Lease as the kubelet of a host does. Its clock is far behind.
func (w *world) renewLease(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if lease, isLease := o.(*coordinationv1.Lease); isLease && !w.isOff.Has(key.Name) && c.Get(ctx, key, lease) == nil {
		w.renewals++
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(w.renewals, 0)}
		if err := c.Update(ctx, lease); err != nil {
			return err
		}
	}
	return c.Get(ctx, key, o, opts...)
}

// changeControlPlane changes the KubeadmControlPlane as its controller does.
func (w *world) changeControlPlane(ctx context.Context, change func(*controlplanev1.KubeadmControlPlane)) {
	GinkgoHelper()
	kcp := &controlplanev1.KubeadmControlPlane{}
	Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: "cp"}, kcp)).To(Succeed())
	change(kcp)
	Expect(w.management.Update(ctx, kcp)).To(Succeed())
}

// setMember sets whether the member of etcd of a host is Ready.
func (w *world) setMember(ctx context.Context, i int, status corev1.ConditionStatus) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Expect(w.workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "etcd-" + hostName(i)}, pod)).To(Succeed())
	pod.Status.Conditions[0].Status = status
	Expect(w.workload.Status().Update(ctx, pod)).To(Succeed())
}

// beginDeletion deletes the Machine of a host, as Cluster API does. It exists until endDeletion, which deletes the Node
// and the PoolbootConfig too.
func (w *world) beginDeletion(ctx context.Context, i int) {
	GinkgoHelper()
	machine := w.machine(ctx, i)
	machine.Finalizers = []string{clusterv1.MachineFinalizer}
	Expect(w.management.Update(ctx, machine)).To(Succeed())
	Expect(w.management.Delete(ctx, machine)).To(Succeed())
}

func (w *world) endDeletion(ctx context.Context, i int) {
	GinkgoHelper()
	Expect(w.workload.Delete(ctx, w.node(ctx, i))).To(Succeed())
	Expect(w.management.Delete(ctx, w.config(ctx, i))).To(Succeed())
	machine := w.machine(ctx, i)
	machine.Finalizers = nil
	Expect(w.management.Update(ctx, machine)).To(Succeed())
}

// held returns the indexes of the hosts whose Machines Cluster API does not drain.
func (w *world) held(ctx context.Context) (held []int) {
	GinkgoHelper()
	for i := range w.size(ctx) {
		if drainhook.Is(w.machine(ctx, i)) {
			held = append(held, i)
		}
	}
	return held
}

// expectQuorum fails if more than one host of the control plane was told to change, or if one was told while Cluster
// API can drain another one.
func (w *world) expectQuorum(ctx context.Context) func() {
	return func() {
		told := w.told(ctx)
		Expect(len(told)).To(BeNumerically("<=", 1))
		for _, changing := range told {
			for i := range w.size(ctx) {
				Expect(i == changing || drainhook.Is(w.machine(ctx, i))).To(BeTrue(), "Machine %d can be drained while host %d changes", i, changing)
			}
		}
	}
}

var _ = Describe("The pool of a control plane", func() {
	It("updates its hosts one after the other, and Cluster API drains no other Machine meanwhile", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.afterWrite = w.expectQuorum(ctx)
		w.render(ctx, "rendered-worker-2")
		for i := range 3 {
			w.settle(ctx)
			Expect(w.told(ctx)).To(Equal([]int{i}))
			Expect(w.held(ctx)).To(HaveLen(2))
			w.complete(ctx, i)
		}
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.held(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(HavePrefix("the control plane could be without a host, and all update gates (0) were open"))
	})

	for n := 1; n <= 14; n++ {
		for _, late := range []bool{false, true} {
			It(fmt.Sprintf("keeps its quorum if the manager crashes: write %d, which takes effect: %t", n, late), func(ctx SpecContext) {
				w := newControlPlane(ctx, 3)
				w.afterWrite = w.expectQuorum(ctx)
				w.render(ctx, "rendered-worker-2")
				w.CrashAt, w.Late = w.Writes+n, late
				for i := range 3 {
					w.settle(ctx)
					w.complete(ctx, i)
				}
				w.settle(ctx)
				Expect(w.told(ctx)).To(BeEmpty())
				Expect(w.held(ctx)).To(BeEmpty())
			})
		}
	}

	DescribeTable("begins no update, and holds no Machine", func(why string, change func(context.Context, *world)) {
		ctx := context.Background()
		w := newControlPlane(ctx, 3)
		change(ctx, w)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.held(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Reason", poolv1.ControlPlaneNotReadyReason), HaveField("Message", ContainSubstring(why))))
	},
		Entry("while a member of etcd is down", "etcd-host-1", func(ctx context.Context, w *world) { w.setMember(ctx, 1, corev1.ConditionFalse) }),
		Entry("while a Node of the control plane that is in no pool is not Ready", "Node other is not Ready", func(ctx context.Context, w *world) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{poolv1.NodeRoleLabelPrefix + "master": ""}}}
			Expect(w.workload.Create(ctx, node)).To(Succeed())
		}),
		Entry("while Cluster API rolls out", "has the condition RollingOut", func(ctx context.Context, w *world) {
			w.changeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) {
				conditions.Set(kcp, metav1.Condition{Type: controlplanev1.KubeadmControlPlaneRollingOutCondition, Status: metav1.ConditionTrue, Reason: "RollingOut"})
			})
		}),
	)

	It("begins no update of two members", func(ctx SpecContext) {
		w := newControlPlane(ctx, 2)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(ContainSubstring("etcd has 2 member(s), and no quorum without that of Node host-0"))
	})

	It("removes its hooks if Cluster API deletes a Machine just before it looks again", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.afterWrite = func() {
			if machine := w.machine(ctx, 2); machine.DeletionTimestamp.IsZero() && drainhook.Is(machine) {
				w.beginDeletion(ctx, 2)
			}
		}
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.held(ctx)).To(BeEmpty())
	})

	It("does not hold the Machine of the host that is away, so that it can be replaced", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.held(ctx)).To(Equal([]int{1, 2}))
	})

	It("says what to do if a host does not return while another Machine is being deleted", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).NotTo(ContainSubstring("deletion"))
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", BeNumerically("<=", drainRetry)))
		machine := w.machine(ctx, 2)
		machine.Finalizers = []string{clusterv1.MachineFinalizer}
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		Expect(w.management.Delete(ctx, machine)).To(Succeed())
		w.settle(ctx)
		Expect(w.held(ctx)).To(Equal([]int{1, 2}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateRebootingReason), HaveField("Message", HaveSuffix(". The deletion of Machine host-2 waits until this host is updated, "+
			"so that the control plane keeps its quorum. If that does not end, bring the host back, or delete its Machine host-0 first"))))
		Expect(w.updated(ctx, 1).Message).NotTo(ContainSubstring("deletion"))

		By("deleting its Machine")
		Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.config(ctx, 0))).To(Succeed())
		Expect(w.management.Delete(ctx, w.machine(ctx, 0))).To(Succeed())
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.machine(ctx, 2)).NotTo(HaveField("Annotations", HaveKey(drainhook.Annotation)))
	})

	It("lets a host go on after its drain only while the others are healthy", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.setMember(ctx, 1, corev1.ConditionFalse)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("etcd-host-1"))
		w.setMember(ctx, 1, corev1.ConditionTrue)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DrainedAnnotation))
	})

	It("begins no update while another host has lost power, although its Node is Ready", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.isOff.Insert(hostName(1))
		w.render(ctx, "rendered-worker-2")
		for range 4 {
			w.settle(ctx)
			Expect(w.told(ctx)).To(BeEmpty())
			Expect(w.gatesCondition(ctx).Message).To(ContainSubstring("the kubelet of Node host-1 was not seen to renew its Lease"))
			w.passed += rolloutRetry
		}
		w.isOff.Delete(hostName(1))
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("begins no update by two looks at a Lease that are so far apart that the host can have lost power since it was renewed", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		w.passed += 2 * rolloutRetry
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(BeEmpty())
		w.passed += rolloutRetry
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(HaveLen(1))
	})

	It("lets a host go on after its drain only while the kubelets of the others run", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.isOff.Insert(hostName(2))
		w.passed += time.Minute
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("the kubelet of Node host-2"))
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", BeNumerically("<=", rolloutRetry)))
		w.isOff.Delete(hostName(2))
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DrainedAnnotation))
	})

	It("lets Cluster API delete another Machine before the drain of a host ends, and none after it", func(ctx SpecContext) {
		w := newControlPlane(ctx, 5)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.held(ctx)).To(Equal([]int{1, 2, 3, 4}))
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.beginDeletion(ctx, 4)
		w.settle(ctx)
		Expect(w.held(ctx)).To(Equal([]int{1, 2, 3}))
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("Machine host-4 is being deleted"))

		w.endDeletion(ctx, 4)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DrainedAnnotation))
		w.beginDeletion(ctx, 3)
		w.settle(ctx)
		Expect(w.held(ctx)).To(Equal([]int{1, 2, 3}))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.held(ctx)).To(BeEmpty())
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
	})

	for n := 1; n <= 8; n++ {
		for _, late := range []bool{false, true} {
			It(fmt.Sprintf("has no host away while Cluster API can delete another Machine if the manager crashes: write %d, which takes effect: %t", n, late), func(ctx SpecContext) {
				w := newControlPlane(ctx, 5)
				w.render(ctx, "rendered-worker-2")
				w.settle(ctx)
				w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
				w.beginDeletion(ctx, 4)
				w.afterWrite = func() {
					if metav1.HasAnnotation(w.node(ctx, 0).ObjectMeta, agentv1.DrainedAnnotation) {
						Expect(w.held(ctx)).To(Equal([]int{1, 2, 3}))
						Expect(w.size(ctx)).To(Equal(4), "Cluster API has deleted the other Machine")
					}
				}
				w.CrashAt, w.Late = w.Writes+n, late
				w.settle(ctx)
				Expect(w.held(ctx)).NotTo(ContainElement(4))
				w.endDeletion(ctx, 4)
				w.settle(ctx)
				Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DrainedAnnotation))
				w.afterWrite = nil
				for i := range 4 {
					w.complete(ctx, i)
					w.settle(ctx)
				}
				Expect(w.told(ctx)).To(BeEmpty())
				Expect(w.held(ctx)).To(BeEmpty())
			})
		}
	}

	It("ends no drain that another manager has started again, because it lets a deleted Machine go", func(ctx SpecContext) {
		w := newControlPlane(ctx, 5)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		other, hasLooked, clusters := w.newManager(w.Write), false, w.reconciler.ClusterCache.(*controllertest.ClusterCache)
		live, err := clusters.GetUncachedClient(ctx, clusterKey)
		Expect(err).NotTo(HaveOccurred())
		clusters.Live = interceptor.NewClient(live.(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if !hasLooked && metav1.HasAnnotation(metav1.ObjectMeta{Annotations: object.GetAnnotations()}, agentv1.DrainedAnnotation) {
					hasLooked = true
					w.beginDeletion(ctx, 2)
					w.passed += drainRetry
					Expect(other.Reconcile(ctx, requestFor(0))).Error().NotTo(HaveOccurred())
					Expect(w.held(ctx)).To(Equal([]int{1, 3, 4}))
				}
				return c.Patch(ctx, object, patch, opts...)
			},
		})
		w.settle(ctx)
		Expect(hasLooked).To(BeTrue())
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
	})

	It("lets a host begin an update without a drain only while the others are healthy, and evicts no Pod", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.evict = func(*corev1.Pod) error { return errors.New("nothing is evicted") }
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}, Spec: corev1.PodSpec{NodeName: hostName(0)}}
		Expect(w.workload.Create(ctx, pod)).To(Succeed())
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		told := revisionOf(0, "rendered-worker-2")
		w.setMember(ctx, 1, corev1.ConditionFalse)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.EffectAnnotation] = told + " Restart " + agentv1.WithoutDrain
		})
		w.reports(ctx, 0, agentv1.Draining, told, "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0).Message).To(And(HavePrefix("Node host-0 waits until it can be away to run rendered-worker-2"), ContainSubstring("etcd-host-1")))
		w.setMember(ctx, 1, corev1.ConditionTrue)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DrainedAnnotation, told))
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("gives the hooks back that something else removes, and one to a Machine that is new", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		for _, i := range []int{1, 2} {
			machine := w.machine(ctx, i)
			delete(machine.Annotations, drainhook.Annotation)
			Expect(w.management.Update(ctx, machine)).To(Succeed())
		}
		w.settle(ctx)
		Expect(w.held(ctx)).To(Equal([]int{1, 2}))
	})

	It("keeps the hooks of a manager that began an update while another one had just looked", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		slow, cluster, p := w.newManager(w.Write), &clusterv1.Cluster{}, &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, clusterKey, cluster)).To(Succeed())
		Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
		Expect(slow.ChooseHosts(ctx, cluster, p, []poolv1.MachineConfigPool{*p}, func() error {
			w.render(ctx, "rendered-worker-2")
			w.settle(ctx)
			return nil // it has nothing to write
		})).Error().NotTo(HaveOccurred())
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.held(ctx)).To(Equal([]int{1, 2}))
	})

	It("removes its hooks if the workload cluster can't be reached before a host has a slot", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		isDown := false
		clusters := w.reconciler.ClusterCache.(*controllertest.ClusterCache)
		live, err := clusters.GetUncachedClient(ctx, clusterKey)
		Expect(err).NotTo(HaveOccurred())
		clusters.Live = interceptor.NewClient(live.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if isDown {
				return apierrors.NewTimeoutError("no leader", 1)
			}
			return c.List(ctx, list, opts...)
		}})
		w.afterWrite = func() { isDown = isDown || len(w.held(ctx)) == 2 }
		for range 3 {
			Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		}
		Expect(isDown).To(BeTrue())
		Expect(w.slots(ctx)).To(BeEmpty())
		Expect(w.held(ctx)).To(BeEmpty())
	})

	It("updates no other host while one changes whose PoolbootConfig was deleted", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.management.Delete(ctx, w.config(ctx, 0))).To(Succeed())
		w.changeNode(ctx, 0, rollout.EndUpdate)
		for range 3 {
			Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		}
		Expect(w.slots(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(ContainSubstring("the update of Node host-0 has not ended"))
		Expect(w.held(ctx)).To(BeEmpty())
	})
})
