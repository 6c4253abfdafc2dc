package metal3_test

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

var _ = Describe("a Machine with a data template", Ordered, func() {
	const ns = "data"
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	get := func(o client.Object) error { return c.Get(context.Background(), client.ObjectKeyFromObject(o), o) }
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: meta("one")}
	hostSpec := func() (bmov1alpha1.BareMetalHostSpec, error) { err := get(host); return host.Spec, err }
	state := func() (bmov1alpha1.ProvisioningState, error) {
		err := get(host)
		return host.Status.Provisioning.State, err
	}
	// create creates a Machine, and returns its Metal3Machine.
	create := func(ctx context.Context, name string, change func(*infrav1.Metal3MachineSpec)) (*clusterv1.Machine, *infrav1.Metal3Machine) {
		GinkgoHelper()
		infra := &infrav1.Metal3Machine{ObjectMeta: meta(name)}
		infra.Labels = map[string]string{clusterv1.ClusterNameLabel: "c3"}
		infra.Spec.Image = infrav1.Image{URL: "http://images.example.com/os.qcow2"}
		change(&infra.Spec)
		Expect(c.Create(ctx, infra)).To(Succeed())
		machine := &clusterv1.Machine{ObjectMeta: meta(name), Spec: clusterv1.MachineSpec{
			ClusterName: "c3", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("user-data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: name},
		}}
		Expect(c.Create(ctx, machine)).To(Succeed())
		return machine, infra
	}
	reference := func(name string) *corev1.SecretReference { return &corev1.SecretReference{Namespace: ns, Name: name} }
	secretData := func(ctx context.Context, name, key string) string {
		GinkgoHelper()
		secret := &corev1.Secret{ObjectMeta: meta(name)}
		Expect(get(secret)).To(Succeed())
		Expect(metav1.GetControllerOf(secret)).To(And(HaveField("Kind", "Metal3Data"), HaveField("Name", "template-0")))
		return string(secret.Data[key])
	}
	var machine *clusterv1.Machine
	var infra *infrav1.Metal3Machine

	BeforeAll(func(ctx SpecContext) {
		Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
		_, err := clusterapi.CreateCluster(ctx, c, clusterapi.ClusterOptions{Namespace: ns, Name: "c3", Workload: plane})
		Expect(err).NotTo(HaveOccurred())
		createBMCSecret(ctx, ns, "bmc")
		host.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}
		for _, o := range []client.Object{host,
			&corev1.Secret{ObjectMeta: meta("user-data"), StringData: map[string]string{"value": "data"}},
			&infrav1.Metal3DataTemplate{ObjectMeta: meta("template"), Spec: infrav1.Metal3DataTemplateSpec{
				ClusterName: "c3",
				MetaData: &infrav1.MetaData{ObjectNames: []infrav1.MetaDataObjectName{{Key: "name", Object: "machine"}},
					IPAddressesFromPool: []infrav1.FromPool{{Key: "ip", Name: "pool"}}},
				NetworkData: &infrav1.NetworkData{Networks: infrav1.NetworkDataNetwork{IPv4: []infrav1.NetworkDataIPv4{{ID: "net", Link: "eth0", IPAddressFromIPPool: "pool"}}}},
			}},
		} {
			Expect(c.Create(ctx, o)).To(Succeed())
		}
	})

	It("takes a host, and deploys it when the data of the host is rendered", func(ctx SpecContext) {
		machine, infra = create(ctx, "m1", func(spec *infrav1.Metal3MachineSpec) { spec.DataTemplate = &infrav1.ObjectReference{Name: "template"} })
		Eventually(func() (*metav1.Condition, error) {
			err := get(infra)
			return conditions.Get(infra, infrav1.Metal3DataReadyCondition), err
		}).Should(HaveField("Reason", infrav1.WaitingForMetal3DataReason), "there is no IPPool")
		Expect(hostSpec()).To(And(HaveField("ConsumerRef.Name", "m1"), HaveField("Image", BeNil()), HaveField("UserData", BeNil())))

		Expect(c.Create(ctx, &ipamv1.IPPool{ObjectMeta: meta("pool"), Spec: ipamv1.IPPoolSpec{ClusterName: ptr.To("c3"), NamePrefix: "address", Prefix: 24,
			Pools: []ipamv1.Pool{{Start: "192.0.2.10", End: "192.0.2.10"}}}})).To(Succeed())
		Eventually(state).Should(Equal(bmov1alpha1.StateProvisioned))
		Expect(hostSpec()).To(And(HaveField("Image.URL", infra.Spec.Image.URL), HaveField("UserData", reference("user-data")),
			HaveField("MetaData", reference("m1-metadata")), HaveField("NetworkData", reference("m1-networkdata"))))
		Expect(secretData(ctx, "m1-metadata", "metaData")).To(MatchYAML("{name: m1, ip: 192.0.2.10, providerid: data/one/m1}"))
		Expect(secretData(ctx, "m1-networkdata", "networkData")).To(MatchYAML(
			"{links: [], services: [], networks: [{id: net, link: eth0, type: ipv4, ip_address: 192.0.2.10, netmask: 255.255.255.0, routes: []}]}"))
		Expect(get(infra)).To(Succeed())
		Expect(infra.Status).To(And(HaveField("RenderedData", &infrav1.ObjectReference{Namespace: ns, Name: "template-0"}),
			HaveField("MetaData", reference("m1-metadata")), HaveField("NetworkData", reference("m1-networkdata"))))
		Expect(conditions.GetReason(infra, infrav1.Metal3DataReadyCondition)).To(Equal(infrav1.Metal3DataSecretsReadyReason))
	})

	It("has objects that clusterctl moves with the Cluster", func() {
		pool, address := &ipamv1.IPPool{ObjectMeta: meta("pool")}, &ipamv1.IPAddress{ObjectMeta: meta("address-192-0-2-10")}
		claim, data := &infrav1.Metal3DataClaim{ObjectMeta: meta("m1")}, &infrav1.Metal3Data{ObjectMeta: meta("template-0")}
		ipClaim := &ipamv1.IPClaim{ObjectMeta: meta("template-0-pool")}
		for o, owners := range map[client.Object]OmegaMatcher{
			pool: HaveExactElements("Cluster"), claim: HaveExactElements("Metal3Machine"), data: HaveExactElements("Metal3DataClaim", "Metal3Machine"), ipClaim: HaveExactElements("Metal3Data"), address: HaveExactElements("IPPool", "IPClaim"),
		} {
			Expect(get(o)).To(Succeed())
			var kinds []string
			for _, owner := range o.GetOwnerReferences() {
				kinds = append(kinds, owner.Kind)
			}
			Expect(kinds).To(owners, o.GetName())
		}
	})

	It("knows its data again after a move has dropped the status of all objects", func(ctx SpecContext) {
		before := infra.DeepCopy()
		infra.Status = infrav1.Metal3MachineStatus{}
		Expect(c.Status().Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
		claim := &infrav1.Metal3DataClaim{ObjectMeta: meta("m1")}
		Expect(get(claim)).To(Succeed())
		old := claim.DeepCopy()
		claim.Status = infrav1.Metal3DataClaimStatus{}
		Expect(c.Status().Patch(ctx, claim, client.MergeFrom(old))).To(Succeed())
		Eventually(func() (infrav1.Metal3MachineStatus, error) { err := get(infra); return infra.Status, err }).Should(And(
			HaveField("RenderedData.Name", "template-0"), HaveField("UserData", BeNil())))
		Expect(conditions.IsTrue(infra, infrav1.Metal3DataReadyCondition)).To(BeTrue())
	})

	It("gives back the address before the host is cleaned, and leaves references to its Secrets on the host", func(ctx SpecContext) {
		Expect(c.Delete(ctx, machine)).To(Succeed())
		Eventually(func() error { return get(infra) }).Should(Satisfy(apierrors.IsNotFound))
		for _, o := range []client.Object{&corev1.Secret{ObjectMeta: meta("m1-metadata")}, &corev1.Secret{ObjectMeta: meta("m1-networkdata")},
			&infrav1.Metal3DataClaim{ObjectMeta: meta("m1")}, &infrav1.Metal3Data{ObjectMeta: meta("template-0")},
			&ipamv1.IPClaim{ObjectMeta: meta("template-0-pool")}, &ipamv1.IPAddress{ObjectMeta: meta("address-192-0-2-10")}} {
			Expect(get(o)).To(Satisfy(apierrors.IsNotFound), o.GetName())
		}
		Expect(hostSpec()).To(And(HaveField("ConsumerRef", BeNil()), HaveField("Image", BeNil()),
			HaveField("MetaData", reference("m1-metadata")), HaveField("NetworkData", reference("m1-networkdata"))))
	})

	It("makes the host of the next Machine without a template wait forever, without an error", func(ctx SpecContext) {
		next, infra := create(ctx, "m2", func(*infrav1.Metal3MachineSpec) {})
		Eventually(state).Should(Equal(bmov1alpha1.StateProvisioning))
		Consistently(state).Should(Equal(bmov1alpha1.StateProvisioning))
		Expect(host.Status.ErrorMessage).To(BeEmpty())
		before := host.DeepCopy()
		host.Spec.MetaData, host.Spec.NetworkData = nil, nil
		Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		Eventually(state).Should(Equal(bmov1alpha1.StateProvisioned))
		Expect(c.Delete(ctx, next)).To(Succeed())
		Eventually(func() error { return get(infra) }).Should(Satisfy(apierrors.IsNotFound))
	})

	It("uses a Secret of the user instead of the template's, and removes the reference to it on release", func(ctx SpecContext) {
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: meta("own"), StringData: map[string]string{"networkData": "links: []"}})).To(Succeed())
		last, infra := create(ctx, "m3", func(spec *infrav1.Metal3MachineSpec) {
			spec.DataTemplate, spec.NetworkData = &infrav1.ObjectReference{Name: "template"}, reference("own")
		})
		Eventually(state).Should(Equal(bmov1alpha1.StateProvisioned))
		Expect(hostSpec()).To(And(HaveField("MetaData", reference("m3-metadata")), HaveField("NetworkData", reference("own"))))
		Expect(c.Delete(ctx, last)).To(Succeed())
		Eventually(func() error { return get(infra) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(hostSpec()).To(And(HaveField("MetaData", reference("m3-metadata")), HaveField("NetworkData", BeNil())))
	})
})
