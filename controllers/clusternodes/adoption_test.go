package clusternodes

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// newMachine returns a Machine of the kubeadm bootstrap provider that has joined.
func newMachine(name, node string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{clusterv1.ClusterNameLabel: edge.Name}},
		Spec: clusterv1.MachineSpec{ClusterName: edge.Name, Bootstrap: clusterv1.Bootstrap{
			ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name},
		}},
		Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node}},
	}
}

// adoptingSite is a Cluster whose pools adopt the Nodes of Machines, with the Machine md-1 on the Node edge-7 in the
// pool infra.
type adoptingSite struct {
	cluster *clusterv1.Cluster
	machine *clusterv1.Machine
	node    *corev1.Node
	infra   *poolv1.MachineConfigPool
	pools   []*poolv1.MachineConfigPool
	others  []client.Object

	management, workload client.WithWatch
	recorder             *events.FakeRecorder
	// intercepted are functions of the client of the reconciler.
	intercepted interceptor.Funcs
}

func newAdoptingSite() *adoptingSite {
	s := &adoptingSite{
		cluster: controllertest.NewCluster(edge), machine: newMachine("md-1", "edge-7"), node: controllertest.NewNode("edge-7", "worker", "infra"),
		infra: controllertest.NewPool(edge, "infra"), recorder: events.NewFakeRecorder(100),
	}
	s.infra.Spec.Adoption = poolv1.PoolAdoptionPreview
	for _, role := range []string{"worker", "control-plane"} {
		p := controllertest.NewPool(edge, role)
		p.Spec.Adoption = poolv1.PoolAdoptionFollow
		s.pools = append(s.pools, p)
	}
	return s
}

// reconcile reconciles the Cluster twice, and returns the errors.
func (s *adoptingSite) reconcile(ctx context.Context) (errs []error) {
	if s.management == nil {
		s.management = controllertest.NewClientBuilder(append(s.others, s.cluster, s.machine, s.infra)...).Build()
		for _, p := range s.pools {
			Expect(s.management.Create(ctx, p)).To(Succeed())
		}
		s.workload = controllertest.NewClientBuilder(s.node).Build()
	}
	r := &Reconciler{Client: interceptor.NewClient(s.management, s.intercepted), ClusterCache: controllertest.NewClusterCache(s.workload, edge), Recorder: s.recorder}
	for range 2 {
		if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: edge}); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// settle reconciles the Cluster, and returns its PoolbootConfigs.
func (s *adoptingSite) settle(ctx context.Context) []bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	Expect(s.reconcile(ctx)).To(BeEmpty())
	configs := &bootstrapv1.PoolbootConfigList{}
	Expect(s.management.List(ctx, configs)).To(Succeed())
	return configs.Items
}

var _ = Describe("A Machine of another bootstrap provider whose pool adopts Nodes", func() {
	var s *adoptingSite
	BeforeEach(func() { s = newAdoptingSite() })

	It("gets the PoolbootConfig that adopts its Node, which has its name and is deleted with it", func(ctx SpecContext) {
		s.cluster.Labels = map[string]string{clusterv1.WatchLabel: "blue"}
		configs := s.settle(ctx)
		Expect(configs).To(HaveLen(1))
		Expect(configs[0].Name).To(Equal("md-1"))
		Expect(configs[0].Labels).To(Equal(map[string]string{clusterv1.ClusterNameLabel: edge.Name, clusterv1.WatchLabel: "blue"}))
		Expect(configs[0].OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "md-1", UID: "uid-of-md-1"}}))
		Expect(configs[0].Spec).To(Equal(bootstrapv1.PoolbootConfigSpec{
			BootSpec: bootstrapv1.BootSpec{PoolRole: "infra"},
			Host:     bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionPreview},
		}))
		Expect(controllertest.Events(s.recorder)).To(ConsistOf("Normal PoolbootConfigCreated PoolbootConfig md-1 is created: the spec.adoption of MachineConfigPool infra is Preview, and adopts Node edge-7"))
	})

	DescribeTable("is adopted for the pool of its Node, with the policy of that pool:",
		func(ctx SpecContext, node *corev1.Node, isControlPlane bool, role string) {
			s.node = node
			if isControlPlane {
				s.machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
			}
			Expect(s.settle(ctx)).To(ConsistOf(And(HaveField("Spec.PoolRole", role), HaveField("Spec.Host.Adoption", bootstrapv1.AdoptionFollow))))
		},
		Entry("a worker", controllertest.NewNode("edge-7", "worker"), false, "worker"),
		Entry("the control plane", controllertest.NewNode("edge-7", "control-plane"), true, "control-plane"),
		Entry("the control plane of a cluster whose Pods run on all Nodes", controllertest.NewNode("edge-7", "control-plane", "worker"), true, "control-plane"),
	)

	It("of the control plane and that of a worker, which one pool selects, are adopted for their own pools", func(ctx SpecContext) {
		const label = "node-restriction.kubernetes.io/tier"
		s.infra.Spec.NodeSelector, s.infra.Spec.Adoption = &metav1.LabelSelector{MatchLabels: map[string]string{label: "db"}}, poolv1.PoolAdoptionFollow
		controlPlane, second := newMachine("cp-1", "cp-1"), controllertest.NewNode("cp-1", "control-plane", "infra")
		controlPlane.Labels[clusterv1.MachineControlPlaneLabel] = ""
		s.node.Labels[label], second.Labels[label] = "db", "db"
		s.others, s.workload = []client.Object{controlPlane}, controllertest.NewClientBuilder(s.node, second).Build()
		s.management = controllertest.NewClientBuilder(s.cluster, s.machine, controlPlane, s.infra).Build()
		Expect(s.settle(ctx)).To(HaveExactElements(And(HaveField("Spec.Host.NodeName", "edge-7"), HaveField("Spec.PoolRole", "infra"))), "without a pool of the control plane")
		for _, p := range s.pools {
			Expect(s.management.Create(ctx, p)).To(Succeed())
		}
		Expect(s.settle(ctx)).To(ConsistOf(
			And(HaveField("Spec.Host.NodeName", "edge-7"), HaveField("Spec.PoolRole", "infra")),
			And(HaveField("Spec.Host.NodeName", "cp-1"), HaveField("Spec.PoolRole", "control-plane"), HaveField("Spec.Host.Adoption", bootstrapv1.AdoptionFollow))))
	})

	DescribeTable("is not adopted, and nothing is reported,", func(ctx SpecContext, change func()) {
		change()
		Expect(s.settle(ctx)).To(BeEmpty())
		Expect(controllertest.Events(s.recorder)).To(BeEmpty())
	},
		Entry("if its pool asks, as the default", func() { s.infra.Spec.Adoption = "" }),
		Entry("if its pool asks", func() { s.infra.Spec.Adoption = poolv1.PoolAdoptionAsk }),
		Entry("if its pool is being deleted", func() {
			s.infra.Finalizers, s.infra.DeletionTimestamp = []string{"example.com/keep"}, ptr.To(metav1.Now())
		}),
		Entry("if two pools have the role", func() {
			second := controllertest.NewPool(edge, "infra")
			second.Name, second.Spec.Adoption = "infra-2", poolv1.PoolAdoptionFollow
			s.pools = append(s.pools, second)
		}),
		Entry("if no pool selects its Node", func() { s.node = controllertest.NewNode("edge-7", "gpu") }),
		Entry("if Windows runs on it", func() { s.node.Labels[corev1.LabelOSStable] = "windows" }),
		Entry("if Poolboot boots it", func() { s.machine.Spec.Bootstrap.ConfigRef.Kind = "PoolbootConfig" }),
		Entry("before it has joined", func() { s.machine.Status.NodeRef = clusterv1.MachineNodeReference{} }),
		Entry("before its Node is known", func() { s.node.Name = "edge-8" }),
		Entry("while it is being deleted", func() {
			s.machine.Finalizers, s.machine.DeletionTimestamp = []string{clusterv1.MachineFinalizer}, ptr.To(metav1.Now())
		}),
		Entry("while its Cluster is paused", func() { s.cluster.Spec.Paused = ptr.To(true) }),
		Entry("while its Cluster is being deleted", func() {
			s.cluster.Finalizers, s.cluster.DeletionTimestamp = []string{clusterv1.ClusterFinalizer}, ptr.To(metav1.Now())
		}),
		Entry("if it belongs to another Cluster", func() { s.machine.Labels[clusterv1.ClusterNameLabel] = "other" }),
		Entry("for worker, before kubeadm has set the label of the control plane", func() {
			s.machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
			s.node = controllertest.NewNode("edge-7", "worker")
		}),
		Entry("for the control plane, if it is a worker", func() { s.node = controllertest.NewNode("edge-7", "control-plane") }),
		Entry("if it has no Machine", func() { s.machine.Status.NodeRef.Name = "other" }),
	)

	DescribeTable("of the control plane keeps the PoolbootConfig that a user created, although the pool adopts all", func(ctx SpecContext, change func(*bootstrapv1.PoolbootConfig)) {
		s.machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		s.node = controllertest.NewNode("edge-7", "control-plane")
		config := record.NewAdoption(client.ObjectKey{Namespace: edge.Namespace, Name: "mine"}, edge.Name, "edge-7", poolv1.RoleControlPlane, bootstrapv1.AdoptionPreview)
		change(config)
		s.others = []client.Object{config}
		before := config.Spec
		Expect(s.settle(ctx)).To(HaveExactElements(HaveField("Spec", before)))
		Expect(controllertest.Events(s.recorder)).To(BeEmpty())
	},
		Entry("before anything is recorded about it", func(*bootstrapv1.PoolbootConfig) {}),
		Entry("with the Node on record", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.NodeRef = bootstrapv1.NodeReference{Name: "edge-7", UID: "node"}
		}),
		Entry("for another pool, which is a mistake that its condition has", func(c *bootstrapv1.PoolbootConfig) { c.Spec.PoolRole = "infra" }),
	)

	DescribeTable("keeps its PoolbootConfig:", func(ctx SpecContext, change func(*bootstrapv1.PoolbootConfig)) {
		config := record.NewAdoption(client.ObjectKey{Namespace: edge.Namespace, Name: "mine"}, edge.Name, "edge-7", "infra", bootstrapv1.AdoptionPreview)
		change(config)
		s.others = []client.Object{config}
		s.infra.Spec.Adoption = poolv1.PoolAdoptionFollow
		before := config.Spec
		Expect(s.settle(ctx)).To(HaveExactElements(HaveField("Spec", before)))
		Expect(controllertest.Events(s.recorder)).To(BeEmpty())
	},
		Entry("that a user created", func(*bootstrapv1.PoolbootConfig) {}),
		Entry("that has its name", func(c *bootstrapv1.PoolbootConfig) { c.Name = "md-1" }),
		Entry("that was created for an earlier name of its Node", func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.Host.NodeName, c.OwnerReferences = "before", []metav1.OwnerReference{record.AdoptionOwner(newMachine("md-1", "before"))}
		}),
		Entry("that is being deleted", func(c *bootstrapv1.PoolbootConfig) {
			c.Finalizers, c.DeletionTimestamp = []string{bootstrapv1.Finalizer}, ptr.To(metav1.Now())
		}),
		Entry("of another kind of host with this Node", func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.Host.Type, c.Spec.Host.Adoption = bootstrapv1.HostTypeEnrollment, ""
		}),
	)

	It("keeps the policy of its PoolbootConfig when that of the pool changes, and gets the new one after its PoolbootConfig is deleted", func(ctx SpecContext) {
		setAdoption := func(policy poolv1.PoolAdoption) {
			GinkgoHelper()
			before := s.infra.DeepCopy()
			s.infra.Spec.Adoption = policy
			Expect(s.management.Patch(ctx, s.infra, client.MergeFrom(before))).To(Succeed())
		}
		Expect(s.settle(ctx)).To(HaveLen(1))
		setAdoption(poolv1.PoolAdoptionFollow)
		configs := s.settle(ctx)
		Expect(configs).To(HaveExactElements(HaveField("Spec.Host.Adoption", bootstrapv1.AdoptionPreview)))
		Expect(s.management.Delete(ctx, &configs[0])).To(Succeed())
		configs = s.settle(ctx)
		Expect(configs).To(HaveExactElements(HaveField("Spec.Host.Adoption", bootstrapv1.AdoptionFollow)))
		setAdoption(poolv1.PoolAdoptionAsk)
		Expect(s.management.Delete(ctx, &configs[0])).To(Succeed())
		Expect(s.settle(ctx)).To(BeEmpty())
	})

	// warning returns the only event, after a reconcile that creates nothing.
	warning := func(ctx context.Context, existing ...string) string {
		GinkgoHelper()
		var names []string
		for _, config := range s.settle(ctx) {
			names = append(names, config.Name)
		}
		Expect(names).To(ConsistOf(existing))
		received := controllertest.Events(s.recorder)
		Expect(received).To(HaveLen(2), "one for each reconcile, of which the API server keeps one")
		Expect(received[0]).To(And(Equal(received[1]), HavePrefix("Warning NodeNotAdopted Node edge-7 is not adopted: ")))
		return received[0]
	}

	Context("on a host whose root lies", func() {
		It("does not get into a custom pool by labels that a kubelet can set", func(ctx SpecContext) {
			s.infra.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/tier": "db"}}
			s.node = controllertest.NewNode("edge-7", "worker")
			s.node.Labels["example.com/tier"] = "db"
			Expect(warning(ctx)).To(And(ContainSubstring("labels that its kubelet can set put it in the pool of MachineConfigPool infra"), ContainSubstring("node-restriction.kubernetes.io/")))
		})

		It("does not get into worker by labels that a kubelet can set and that hide its own pool", func(ctx SpecContext) {
			s.infra.Spec.NodeSelector = &metav1.LabelSelector{
				MatchLabels:      map[string]string{poolv1.NodeRoleLabelPrefix + "infra": ""},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "example.com/tier", Operator: metav1.LabelSelectorOpDoesNotExist}},
			}
			s.node.Labels["example.com/tier"] = "db"
			Expect(warning(ctx)).To(ContainSubstring("put it in the pool of MachineConfigPool worker"))
		})

		It("gets into a pool by the labels that a kubelet can't set, whatever else it sets", func(ctx SpecContext) {
			s.infra.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-restriction.kubernetes.io/tier": "db"}}
			s.node = controllertest.NewNode("edge-7", "worker")
			s.node.Labels["node-restriction.kubernetes.io/tier"], s.node.Labels["example.com/tier"] = "db", "web"
			Expect(s.settle(ctx)).To(HaveExactElements(HaveField("Spec.PoolRole", "infra")))
		})

		It("does not get what is for another Machine by the providerID of that", func(ctx SpecContext) {
			s.others = []client.Object{newMachine("md-2", "edge-7")}
			Expect(warning(ctx)).To(HaveSuffix("it is also the Node of Machine md-2: delete the Machine that is not on this host"))
		})

		It("does not take the name of another PoolbootConfig by that of its Node", func(ctx SpecContext) {
			s.machine.Status.NodeRef.Name, s.node.Name = "rack1-u12", "rack1-u12"
			Expect(s.settle(ctx)).To(HaveExactElements(HaveField("Name", "md-1")))
		})
	})

	It("gets one PoolbootConfig, whatever the owner of the workload cluster calls its Node", func(ctx SpecContext) {
		Expect(s.settle(ctx)).To(HaveLen(1))
		for i := range 3 {
			name := fmt.Sprintf("renamed-%d", i)
			Expect(s.workload.Create(ctx, controllertest.NewNode(name, "infra"))).To(Succeed())
			s.machine.Status.NodeRef.Name = name
			Expect(s.management.Update(ctx, s.machine)).To(Succeed())
			Expect(s.settle(ctx)).To(HaveLen(1))
		}
	})

	DescribeTable("is not adopted, and an event names what has its name,", func(ctx SpecContext, other *bootstrapv1.PoolbootConfig, host string) {
		s.others = []client.Object{other}
		Expect(warning(ctx, "md-1")).To(HaveSuffix("PoolbootConfig md-1 exists and is that of host " + host + ": delete it, or adopt the Node by a PoolbootConfig with another name"))
	},
		Entry("such as another host of the Cluster", record.NewAdoption(client.ObjectKey{Namespace: edge.Namespace, Name: "md-1"}, edge.Name, "edge-1", "infra", bootstrapv1.AdoptionPreview), "edge-1"),
		Entry("such as a host of another Cluster", record.NewAdoption(client.ObjectKey{Namespace: edge.Namespace, Name: "md-1"}, "other", "edge-7", "infra", bootstrapv1.AdoptionPreview), "edge-7"),
		Entry("such as a host that Poolboot boots", controllertest.NewConfig(edge, "md-1"), "md-1"),
	)

	It("is not adopted if the PoolbootConfig is refused, and other Machines are", func(ctx SpecContext) {
		s.others = []client.Object{newMachine("md-2", "edge-8")}
		s.intercepted.Create = func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if object.GetName() == "md-1" {
				return apierrors.NewInvalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfig").GroupKind(), "md-1", nil)
			}
			return c.Create(ctx, object, options...)
		}
		s.workload = controllertest.NewClientBuilder(s.node, controllertest.NewNode("edge-8", "infra")).Build()
		s.management = controllertest.NewClientBuilder(append(s.others, s.cluster, s.machine, s.infra)...).Build()
		Expect(s.settle(ctx)).To(HaveExactElements(HaveField("Name", "md-2")))
		Expect(controllertest.Events(s.recorder)).To(ContainElement(ContainSubstring("Node edge-7 is not adopted: PoolbootConfig md-1 can't be created: ")))
	})

	It("is adopted after an error, and by one of two managers", func(ctx SpecContext) {
		isStale, fails := true, true
		s.intercepted.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ofConfigs := list.(*bootstrapv1.PoolbootConfigList); ofConfigs && isStale {
				return nil // the cache has none
			}
			return c.List(ctx, list, options...)
		}
		s.intercepted.Create = func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := c.Create(ctx, object, options...); err != nil || !fails {
				return err
			}
			fails = false
			return apierrors.NewTimeoutError("the write took effect", 0)
		}
		Expect(s.reconcile(ctx)).To(ConsistOf(MatchError(ContainSubstring("adopt Node edge-7"))))
		Expect(s.settle(ctx)).To(HaveLen(1))
		Expect(controllertest.Events(s.recorder)).To(BeEmpty(), "it has its own")
		isStale = false
		Expect(s.settle(ctx)).To(HaveLen(1))
	})

	It("is looked at when it has joined, when it is deleted, and when a PoolbootConfig is deleted", func(ctx SpecContext) {
		changed, joining, poolboots := hasJoined(), newMachine("md-1", ""), newMachine("md-1", "edge-7")
		poolboots.Spec.Bootstrap.ConfigRef.Kind = "PoolbootConfig"
		Expect(changed.Create(event.CreateEvent{Object: s.machine})).To(BeTrue())
		Expect(changed.Create(event.CreateEvent{Object: joining})).To(BeFalse())
		Expect(changed.Create(event.CreateEvent{Object: poolboots})).To(BeFalse())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: joining, ObjectNew: s.machine})).To(BeTrue())
		Expect(changed.Update(event.UpdateEvent{ObjectOld: s.machine, ObjectNew: s.machine})).To(BeFalse())
		Expect(changed.Delete(event.DeleteEvent{Object: s.machine})).To(BeTrue())
		Expect(clusterOfMachine(ctx, s.machine)).To(ConsistOf(ctrl.Request{NamespacedName: edge}))

		adoption := record.NewAdoption(edge, edge.Name, "edge-7", "infra", bootstrapv1.AdoptionPreview)
		Expect(isDeleted().Delete(event.DeleteEvent{Object: adoption})).To(BeTrue())
		Expect(isDeleted().Delete(event.DeleteEvent{Object: controllertest.NewConfig(edge, "md-1")})).To(BeFalse())
		Expect(isDeleted().Create(event.CreateEvent{Object: adoption})).To(BeFalse())
		Expect(isDeleted().Update(event.UpdateEvent{ObjectOld: adoption, ObjectNew: adoption})).To(BeFalse())
		Expect(clusterOfConfig(ctx, adoption)).To(ConsistOf(ctrl.Request{NamespacedName: edge}))
	})
})
