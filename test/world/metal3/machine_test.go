package metal3_test

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

const namespace = metav1.NamespaceDefault

var _ = Describe("a MachineDeployment on simulated hosts", Ordered, func() {
	var (
		machine       *clusterv1.Machine
		metal3Machine *infrav1.Metal3Machine
		host          = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "right"}}
		other         = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wrong"}}
		deployment    *clusterv1.MachineDeployment
	)
	get := func(ctx context.Context, o client.Object) error { return c.Get(ctx, client.ObjectKeyFromObject(o), o) }

	BeforeAll(func(ctx SpecContext) {
		_, err := clusterapi.CreateCluster(ctx, c, clusterapi.ClusterOptions{Namespace: namespace, Name: "c1", Workload: plane})
		Expect(err).NotTo(HaveOccurred())
		host.Labels = map[string]string{"rack": "r7"}
		for _, h := range []*bmov1alpha1.BareMetalHost{host, other} {
			h.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}
			Expect(c.Create(ctx, h)).To(Succeed())
		}
		template := &infrav1.Metal3MachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "md"}}
		template.Spec.Template.Spec = infrav1.Metal3MachineSpec{
			Image:        infrav1.Image{URL: "http://images.example.com/os.qcow2", Checksum: "c0ffee"},
			HostSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "r7"}},
		}
		Expect(c.Create(ctx, template)).To(Succeed())
		bootstrap := generic(builder.GenericBootstrapConfigTemplateKind, "md")
		bootstrap.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
		Expect(c.Create(ctx, bootstrap)).To(Succeed())
		deployment = machineDeployment()
		Expect(c.Create(ctx, deployment)).To(Succeed())
	})

	It("inspects each host and makes it available", func(ctx SpecContext) {
		for _, h := range []*bmov1alpha1.BareMetalHost{host, other} {
			Eventually(func(g Gomega) {
				g.Expect(get(ctx, h)).To(Succeed())
				g.Expect(h.Status.Provisioning.State).To(Equal(bmov1alpha1.StateAvailable))
			}).Should(Succeed())
			data := &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: h.Name}}
			Expect(get(ctx, data)).To(Succeed())
			Expect(data.Spec.HardwareDetails).To(Equal(h.Status.HardwareDetails))
		}
	})

	It("takes no host before the bootstrap data exists", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			machines := &clusterv1.MachineList{}
			g.Expect(c.List(ctx, machines, client.InNamespace(namespace))).To(Succeed())
			g.Expect(machines.Items).To(HaveLen(1))
			machine = &machines.Items[0]
			metal3Machine = &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine.Spec.InfrastructureRef.Name}}
			g.Expect(get(ctx, metal3Machine)).To(Succeed())
			waiting := conditions.Get(metal3Machine, infrav1.AssociateBareMetalHostCondition)
			g.Expect(waiting).To(HaveField("Reason", infrav1.WaitingForBootstrapDataReason))
		}).Should(Succeed())
		Expect(get(ctx, host)).To(Succeed())
		Expect(host.Spec.ConsumerRef).To(BeNil())
	})

	It("then deploys a matching host, and boots it with the bootstrap data", func(ctx SpecContext) {
		// The name is the bootstrap config's, which the provider uses if the Machine has no dataSecretName yet.
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name},
			Data:       map[string][]byte{"value": []byte("the pointer")},
		}
		Expect(c.Create(ctx, secret)).To(Succeed())
		bootstrap := generic(builder.GenericBootstrapConfigKind, secret.Name)
		Expect(get(ctx, bootstrap)).To(Succeed())
		before := bootstrap.DeepCopy()
		bootstrap.Object["status"] = map[string]any{
			"dataSecretName": secret.Name, "initialization": map[string]any{"dataSecretCreated": true},
		}
		Expect(c.Status().Patch(ctx, bootstrap, client.MergeFrom(before))).To(Succeed(), "the patch can conflict with Cluster API's")

		Eventually(func(g Gomega) {
			g.Expect(get(ctx, host)).To(Succeed())
			g.Expect(host.Status.Provisioning.State).To(Equal(bmov1alpha1.StateProvisioned))
		}).Should(Succeed())
		Eventually(func() (bool, error) { return host.Status.PoweredOn, get(ctx, host) }).Should(BeTrue(), "the power state is read after the host is provisioned")
		Expect(host.Spec.ConsumerRef.Name).To(Equal(metal3Machine.Name))
		Expect(host.Spec.UserData.Name).To(Equal(machine.Spec.Bootstrap.ConfigRef.Name))
		Expect(power.of(host)()).To(Equal([]string{"right boots with the pointer"}))
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, metal3Machine)).To(Succeed())
			g.Expect(metal3Machine.Annotations).To(HaveKeyWithValue(infrav1.HostAnnotation, namespace+"/right"))
		}).Should(Succeed())
		Expect(metal3Machine.Spec.ProviderID).To(BeEmpty())
	})

	It("finds the Node by the host's UID, and sets its provider ID for Cluster API", func(ctx SpecContext) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"metal3.io/uuid": string(host.UID)}}}
		Expect(c.Create(ctx, node)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, machine)).To(Succeed())
			g.Expect(machine.Status.NodeRef.Name).To(Equal("n1"))
		}).Should(Succeed())
		Expect(get(ctx, node)).To(Succeed())
		Expect(node.Spec.ProviderID).To(Equal("metal3://" + namespace + "/right/" + metal3Machine.Name))
		Eventually(func() (*infrav1.Metal3Machine, error) { return metal3Machine, get(ctx, metal3Machine) }).Should(
			Satisfy(func(m *infrav1.Metal3Machine) bool { return conditions.IsTrue(m, clusterv1.ReadyCondition) }))

		By("clearing the status, as a move does: Metal3DataReady is not reported")
		before := metal3Machine.DeepCopy()
		metal3Machine.Status = infrav1.Metal3MachineStatus{}
		Expect(c.Status().Patch(ctx, metal3Machine, client.MergeFrom(before))).To(Succeed())
		Eventually(func() (string, error) {
			return conditions.GetMessage(metal3Machine, clusterv1.ReadyCondition), get(ctx, metal3Machine)
		}).Should(
			ContainSubstring("Metal3DataReady: Condition not yet reported"))
	})

	It("sets the labels of the prefixes that are synced to those of the host, and removes others", func(ctx SpecContext) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		Expect(get(ctx, node)).To(Succeed())
		before := node.DeepCopy()
		node.Labels["example.com/tier"], node.Labels["example.com/rack"], node.Labels["sub.example.com/a"] = "infra", "r1", "b"
		Expect(c.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
		changed := host.DeepCopy()
		metav1.SetMetaDataLabel(&changed.ObjectMeta, "example.com/rack", "r7")
		Expect(c.Patch(ctx, changed, client.MergeFrom(host))).To(Succeed())
		metal3Cluster := &infrav1.Metal3Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1"}}
		Expect(get(ctx, metal3Cluster)).To(Succeed())
		unsynced := metal3Cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&metal3Cluster.ObjectMeta, "metal3.io/metal3-label-sync-prefixes", "none.example.com, example.com")
		Expect(c.Patch(ctx, metal3Cluster, client.MergeFrom(unsynced))).To(Succeed())
		Eventually(func() (map[string]string, error) { return node.Labels, get(ctx, node) }).Should(And(
			HaveKeyWithValue("example.com/rack", "r7"), Not(HaveKey("example.com/tier")), HaveKeyWithValue("sub.example.com/a", "b")))
	})

	It("powers a host on again that someone turns off", func(ctx SpecContext) {
		Expect(get(ctx, host)).To(Succeed())
		before := host.DeepCopy()
		host.Spec.Online = false
		Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		Eventually(func() (bool, error) { return host.Spec.Online, get(ctx, host) }).Should(BeTrue())
		Eventually(func() string { events := power.of(host)(); return events[len(events)-1] }).Should(HavePrefix("right boots"))
		Eventually(func() (bool, error) { return host.Status.PoweredOn, get(ctx, host) }).Should(BeTrue())
	})

	It("power-cycles a host with the reboot annotation once", func(ctx SpecContext) {
		earlier := power.of(host)()
		before := host.DeepCopy()
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.RebootAnnotationPrefix, "")
		Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		Eventually(power.of(host)).Should(Equal(append(earlier, "right is off", "right boots again")))
		Expect(get(ctx, host)).To(Succeed())
		Expect(host.Annotations).NotTo(HaveKey(bmov1alpha1.RebootAnnotationPrefix))
	})

	It("frees the host when the Machine is deleted", func(ctx SpecContext) {
		before := deployment.DeepCopy()
		deployment.Spec.Replicas = ptr.To[int32](0)
		Expect(c.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, host)).To(Succeed())
			g.Expect(host.Status.Provisioning.State).To(Equal(bmov1alpha1.StateAvailable))
			g.Expect(host.Spec.ConsumerRef).To(BeNil())
			g.Expect(get(ctx, metal3Machine)).NotTo(Succeed())
		}).Should(Succeed())
		Expect(host.Status.PoweredOn).To(BeFalse())
		Expect(host.Spec.UserData.Name).To(Equal(machine.Spec.Bootstrap.ConfigRef.Name), "the move dropped the status by which the provider would have removed it")
		Expect(host.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation), "clusterctl move waits for its end in vain")
		Expect(power.of(other)()).To(BeEmpty(), "the host that does not fit was left alone")
	})
})

func generic(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(builder.BootstrapGroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func machineDeployment() *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "md"},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: "c1",
			Replicas:    ptr.To[int32](1),
			Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
				ClusterName: "c1",
				Version:     "v1.36.3",
				Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: builder.BootstrapGroupVersion.Group, Kind: builder.GenericBootstrapConfigTemplateKind, Name: "md",
				}},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3MachineTemplate", Name: "md",
				},
			}},
		},
	}
}
