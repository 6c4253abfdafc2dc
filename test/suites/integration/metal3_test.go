package integration

import (
	"context"
	"strconv"
	"time"

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

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// patch reads and patches an object.
func patch[object client.Object](ctx context.Context, o object, change func(object)) {
	GinkgoHelper()
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	before := o.DeepCopyObject().(client.Object)
	change(o)
	Expect(lab.ManagementClient.Patch(ctx, o, client.MergeFrom(before))).To(Succeed())
}

// newHost returns a BareMetalHost with the name of a tenant's host.
func newHost(t *tenant.Tenant, name string) *bmov1alpha1.BareMetalHost {
	return &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: name}}
}

// listCredentialIDs lists the IDs of a config's existing join credentials.
func listCredentialIDs(ctx context.Context, config *bootstrapv1.PoolbootConfig) []string {
	GinkgoHelper()
	tokens := &corev1.SecretList{}
	Expect(lab.WorkloadClient.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
	var ids []string
	for i := range tokens.Items {
		if join.IsCredentialOf(&tokens.Items[i], client.ObjectKeyFromObject(config).String()) {
			ids = append(ids, string(tokens.Items[i].Data["token-id"]))
		}
	}
	return ids
}

// bootHost creates a Machine and waits until its host has its configuration. The host has no kubelet.
func bootHost(ctx context.Context, t *tenant.Tenant, change func(*bootstrapv1.BootSpec)) (*bootstrapv1.PoolbootConfig, *fakeHost) {
	GinkgoHelper()
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: change})
	config := t.Config(ctx, "infra")
	return config, waitForConfiguration(ctx, t, config)
}

// expectBootedOn expects a config's Node and its only join credential to be for a host, and to be in its configuration.
func expectBootedOn(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, name string) {
	GinkgoHelper()
	bmh := newHost(t, name)
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
	host := waitForConfiguration(ctx, t, config)
	Expect(config.Status.HostRef.Name).To(Equal(name))
	node := t.Node(ctx, config)
	Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, string(bmh.UID)))
	Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"))
	id := "metal3://" + t.Namespace + "/" + name + "/" + t.Machine(ctx, config).Spec.InfrastructureRef.Name
	Expect(node.Spec.ProviderID).To(Equal(id))
	Eventually(ctx, func() []string { return listCredentialIDs(ctx, config) }).Should(ConsistOf(config.Status.Boot.CredentialID))
	env, err := host.readFile("/etc/poolboot/kubelet.env")
	Expect(err).NotTo(HaveOccurred())
	Expect(env).To(ContainSubstring(id))
	bootstrap, err := host.readFile("/etc/kubernetes/bootstrap-kubelet.conf")
	Expect(err).NotTo(HaveOccurred())
	Expect(bootstrap).To(ContainSubstring(config.Status.Boot.CredentialID))
}

var _ = Describe("A host that Metal3", func() {
	It("boots from a live ISO is reported before it fails to request its configuration", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Image: "http://images.example.com/live.iso", DiskFormat: "live-iso"})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False HostImageIgnoresUserData"),
			ContainSubstring("BareMetalHost "+t.HostName(0)), ContainSubstring("spec.image.format is live-iso"), ContainSubstring("disk image")))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False HostImageIgnoresUserData"))
		bmh := newHost(t, t.HostName(0))
		Eventually(ctx, func() (bmov1alpha1.ProvisioningState, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
			return bmh.Status.Provisioning.State, err
		}).Should(Equal(bmov1alpha1.StateProvisioned))
		Expect(hosts.get(client.ObjectKeyFromObject(bmh)).statusCodes()).To(BeEmpty())
	})

	It("deprovisions and provisions again before its Node is Ready keeps its token, and gets a new Node and join credential", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		config, _ := bootHost(ctx, t, nil)
		token, node, credential := t.Pointer(ctx, config), t.Node(ctx, config), config.Status.Boot.CredentialID
		metal3Machine := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Machine(ctx, config).Spec.InfrastructureRef.Name}}
		patch(ctx, metal3Machine, func(m *infrav1.Metal3Machine) { // prevents the Metal3Machine from provisioning the host again at once
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
		})
		bmh := newHost(t, t.HostName(0))
		Eventually(ctx, func() (map[string]string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
			return bmh.Annotations, err
		}).Should(HaveKey(bmov1alpha1.PausedAnnotation), "only this spec changes the host now")
		setState := func(state bmov1alpha1.ProvisioningState) {
			GinkgoHelper()
			before := bmh.DeepCopy()
			bmh.Status.Provisioning.State, bmh.Status.PoweredOn = state, false
			Expect(lab.ManagementClient.Status().Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
		}
		image := bmh.Spec.Image
		patch(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = nil })
		setState(bmov1alpha1.StateDeprovisioning)
		Expect(hosts.PowerOff(ctx, bmh)).To(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("Unknown WaitingForHost"), ContainSubstring(t.HostName(0))))
		Eventually(ctx, func() []string { return listCredentialIDs(ctx, config) }).Should(BeEmpty(), "the condition changes before the credential is deleted")
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}))
		}).Should(BeTrue())
		setState(bmov1alpha1.StateAvailable)
		patch(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = image }) // Metal3 sets it only when it chooses a host
		patch(ctx, metal3Machine, func(m *infrav1.Metal3Machine) { delete(m.Annotations, clusterv1.PausedAnnotation) })
		waitForConfiguration(ctx, t, config)
		expectBootedOn(ctx, t, config, t.HostName(0))
		Expect(t.Pointer(ctx, config)).To(Equal(token))
		Expect(t.Node(ctx, config).UID).NotTo(Equal(node.UID))
		Expect(config.Status.Boot.CredentialID).NotTo(Equal(credential))
	})

	It("replaces before its Node is Ready, because its Metal3Machine was created again, keeps no credential for the Node", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		config, _ := bootHost(ctx, t, nil)
		expectBootedOn(ctx, t, config, t.HostName(0))
		before := config.Status.Boot.CredentialID
		old := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Machine(ctx, config).Spec.InfrastructureRef.Name}}
		patch(ctx, newHost(t, t.HostName(0)), func(h *bmov1alpha1.BareMetalHost) {
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, "capm3.metal3.io/unhealthy", "")
		})
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(old), old)).To(Succeed())
		replacement := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, OwnerReferences: old.OwnerReferences}, Spec: old.Spec}
		replacement.Spec.ProviderID = ""
		Expect(lab.ManagementClient.Delete(ctx, old)).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(old), old))
		}).Should(BeTrue())
		Eventually(ctx, func() []string { return listCredentialIDs(ctx, config) }).ShouldNot(ContainElement(before))
		t.AddHost(ctx, t.HostName(1))
		t.Create(ctx, replacement)
		Eventually(ctx, func(ctx context.Context) (string, error) {
			_, err := t.Condition(config, bootstrapv1.BootPreparedCondition)(ctx)
			if !config.Status.HostRef.IsDefined() {
				return "", err
			}
			return config.Status.HostRef.Name, err
		}).Should(Equal(t.HostName(1)))
		expectBootedOn(ctx, t, config, t.HostName(1))
	})

	It("keeps for the next Machine, by node reuse, gets the token, Node and credential of the new Machine, under the same name", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, NodeReuse: true,
			Config: func(spec *bootstrapv1.BootSpec) { spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }})
		first := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, first)
		pointer, node := t.Pointer(ctx, first), t.Node(ctx, first)
		Expect(node.Name).To(Equal(t.HostName(0)))

		By("cleaning up while the host is kept without a Machine")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 0)
		bmh := newHost(t, t.HostName(0))
		Eventually(ctx, func(ctx context.Context) (*corev1.ObjectReference, error) {
			return bmh.Spec.ConsumerRef, lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
		}).Should(HaveField("Kind", "Cluster"))
		Expect(bmh.Labels).To(HaveKeyWithValue("infrastructure.cluster.x-k8s.io/node-reuse", "md-infra"))
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, "infra") }).Should(BeEmpty())
		Expect(listCredentialIDs(ctx, first)).To(BeEmpty())
		Expect(apierrors.IsNotFound(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}))).To(BeTrue())

		By("booting on the same host, although other hosts are available")
		for i := range 3 {
			t.AddHost(ctx, t.HostName(i+1))
		}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 1)
		second := t.Config(ctx, "infra")
		Expect(second.UID).NotTo(Equal(first.UID))
		waitForConfiguration(ctx, t, second)
		expectBootedOn(ctx, t, second, t.HostName(0))
		again := t.Node(ctx, second)
		Expect(again.Name).To(Equal(node.Name))
		Expect(again.UID).NotTo(Equal(node.UID))
		Expect(again.Annotations).To(HaveKeyWithValue(poolv1.NodeConfigAnnotation, t.Namespace+"/"+second.Name))
		Expect(t.Pointer(ctx, second).Token).NotTo(Equal(pointer.Token))
		Expect(listCredentialIDs(ctx, first)).To(BeEmpty())
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
		for key := range bmh.Annotations {
			Expect(key).NotTo(ContainSubstring(poolv1.GroupVersion.Group))
		}
		old := pointer
		Eventually(ctx, func() (int, error) { code, _, err := getURL(ctx, old, old.URL); return code, err }).Should(Equal(503), "the token belongs to no Machine")
	})

	It("reads the user data for gets one pointer: its Secret exists before it is reported, is never written again, and can be restored", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		watch, err := lab.ManagementClient.Watch(ctx, &bootstrapv1.PoolbootConfigList{}, client.InNamespace(t.Namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watch.Stop)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		secret := &corev1.Secret{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed(), "Metal3 uses this name by default")
		created, err := strconv.ParseUint(secret.ResourceVersion, 10, 64) // etcd numbers the writes of all kinds in one sequence
		Expect(err).NotTo(HaveOccurred())
		var seen *bootstrapv1.PoolbootConfig
		Eventually(ctx, watch.ResultChan()).Should(Receive(HaveField("Object", Satisfy(func(o *bootstrapv1.PoolbootConfig) bool {
			seen = o
			return o.Status.DataSecretName != "" || ptr.Deref(o.Status.Initialization.DataSecretCreated, false) || conditions.IsTrue(o, clusterv1.ReadyCondition)
		}))))
		Expect(strconv.ParseUint(seen.ResourceVersion, 10, 64)).To(BeNumerically(">", created), "the Secret is reported after its creation")

		By("deleting the Secret: it is reported and not replaced, because Metal3 can already have read it")
		Expect(lab.ManagementClient.Delete(ctx, secret.DeepCopy())).To(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.DataSecretAvailableCondition)).Should(And(HavePrefix("False DataSecretFailed"), ContainSubstring("restore it")))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False DataSecretFailed"), "Metal3 provisions no host for it")
		Expect(lab.Manager.Kill()).To(Succeed())
		Expect(lab.Manager.Start(context.WithoutCancel(ctx))).To(Succeed())
		Consistently(ctx, func() error {
			return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), &corev1.Secret{})
		}).
			Should(Satisfy(apierrors.IsNotFound))

		By("booting with the restored Secret")
		restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Labels: secret.Labels, OwnerReferences: secret.OwnerReferences}, Type: secret.Type, Data: secret.Data}
		t.Create(ctx, restored)
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		t.AddHosts(ctx, 1)
		waitForConfiguration(ctx, t, config)
		expectBootedOn(ctx, t, config, t.HostName(0))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(restored), secret)).To(Succeed())
		Expect(secret.Data).To(Equal(restored.Data))
		Expect(secret.ManagedFields).To(HaveEach(HaveField("Manager", restored.ManagedFields[0].Manager)), "Metal3 added its label, Poolboot wrote nothing")
	})

	It("has chosen for a Machine is the only one that boots for it, also when another host names the Machine as its consumer", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		config, _ := bootHost(ctx, t, nil)
		expectBootedOn(ctx, t, config, t.HostName(0))
		t.AddHost(ctx, t.HostName(1))
		chosen := newHost(t, t.HostName(0))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(chosen), chosen)).To(Succeed())
		node := t.Node(ctx, config)
		patch(ctx, newHost(t, t.HostName(1)), func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = chosen.Spec.ConsumerRef })
		Consistently(ctx, func(g Gomega) {
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			g.Expect(config.Status.HostRef.Name).To(Equal(t.HostName(0)))
			g.Expect(t.Node(ctx, config).UID).To(Equal(node.UID))
		}).WithTimeout(2 * time.Second).Should(Succeed())
		expectBootedOn(ctx, t, config, t.HostName(0))
	})
})
