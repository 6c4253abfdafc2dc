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

// patched changes an object as somebody else would.
func patched[object client.Object](ctx context.Context, o object, do func(object)) {
	GinkgoHelper()
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	before := o.DeepCopyObject().(client.Object)
	do(o)
	Expect(lab.ManagementClient.Patch(ctx, o, client.MergeFrom(before))).To(Succeed())
}

// hostAt is a BareMetalHost of a tenant.
func hostAt(t *tenant.Tenant, name string) *bmov1alpha1.BareMetalHost {
	return &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: name}}
}

// liveCredentials are the IDs of the join credentials that stand for a config.
func liveCredentials(ctx context.Context, config *bootstrapv1.PoolbootConfig) []string {
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

// booting is a Machine whose host has its whole configuration, and no kubelet.
func booting(ctx context.Context, t *tenant.Tenant, change func(*bootstrapv1.BootSpec)) (*bootstrapv1.PoolbootConfig, *askingHost) {
	GinkgoHelper()
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: change})
	config := t.Config(ctx, "infra")
	return config, asking(ctx, t, config)
}

// expectOn checks that a config's Node and its only credential are those of a host, and that the host has them.
func expectOn(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, name string) {
	GinkgoHelper()
	bmh := hostAt(t, name)
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
	host := asking(ctx, t, config)
	Expect(config.Status.HostRef.Name).To(Equal(name))
	node := t.Node(ctx, config)
	Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, string(bmh.UID)))
	Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"))
	id := "metal3://" + t.Namespace + "/" + name + "/" + t.Machine(ctx, config).Spec.InfrastructureRef.Name
	Expect(node.Spec.ProviderID).To(Equal(id))
	Eventually(ctx, func() []string { return liveCredentials(ctx, config) }).Should(ConsistOf(config.Status.Boot.CredentialID))
	env, err := host.file("/etc/poolboot/kubelet.env")
	Expect(err).NotTo(HaveOccurred())
	Expect(env).To(ContainSubstring(id))
	bootstrap, err := host.file("/etc/kubernetes/bootstrap-kubelet.conf")
	Expect(err).NotTo(HaveOccurred())
	Expect(bootstrap).To(ContainSubstring(config.Status.Boot.CredentialID))
}

var _ = Describe("A host that Metal3", func() {
	It("boots from a live ISO is told of before it fails to ask", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Image: "http://images.example.com/live.iso", DiskFormat: "live-iso"})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False HostImageIgnoresUserData"),
			ContainSubstring("BareMetalHost "+t.HostName(0)), ContainSubstring("spec.image.format is live-iso"), ContainSubstring("disk image")))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False HostImageIgnoresUserData"))
		bmh := hostAt(t, t.HostName(0))
		Eventually(ctx, func() (bmov1alpha1.ProvisioningState, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
			return bmh.Status.Provisioning.State, err
		}).Should(Equal(bmov1alpha1.StateProvisioned))
		Expect(hosts.of(client.ObjectKeyFromObject(bmh)).answered()).To(BeEmpty())
	})

	It("deprovisions and provisions again before its Node was Ready asks by the same token, and has a new Node and credential", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		config, _ := booting(ctx, t, nil)
		token, node, credential := t.Pointer(ctx, config), t.Node(ctx, config), config.Status.Boot.CredentialID
		metal3Machine := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Machine(ctx, config).Spec.InfrastructureRef.Name}}
		patched(ctx, metal3Machine, func(m *infrav1.Metal3Machine) { // or it would have the host deployed at once
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
		})
		bmh := hostAt(t, t.HostName(0))
		Eventually(ctx, func() (map[string]string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
			return bmh.Annotations, err
		}).Should(HaveKey(bmov1alpha1.PausedAnnotation), "nobody works on the host now but this spec")
		become := func(state bmov1alpha1.ProvisioningState) {
			GinkgoHelper()
			before := bmh.DeepCopy()
			bmh.Status.Provisioning.State, bmh.Status.PoweredOn = state, false
			Expect(lab.ManagementClient.Status().Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
		}
		patched(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = nil })
		become(bmov1alpha1.StateDeprovisioning)
		Expect(hosts.PowerOff(ctx, bmh)).To(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("Unknown WaitingForHost"), ContainSubstring(t.HostName(0))))
		Eventually(ctx, func() []string { return liveCredentials(ctx, config) }).Should(BeEmpty(), "the condition is told first")
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}))
		}).Should(BeTrue())
		become(bmov1alpha1.StateAvailable)
		patched(ctx, metal3Machine, func(m *infrav1.Metal3Machine) { delete(m.Annotations, clusterv1.PausedAnnotation) })
		asking(ctx, t, config)
		expectOn(ctx, t, config, t.HostName(0))
		Expect(t.Pointer(ctx, config)).To(Equal(token))
		Expect(t.Node(ctx, config).UID).NotTo(Equal(node.UID))
		Expect(config.Status.Boot.CredentialID).NotTo(Equal(credential))
	})

	It("replaces by another before its Node was Ready, because its Metal3Machine was made anew, has nothing left that is good for the Node", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		config, _ := booting(ctx, t, nil)
		expectOn(ctx, t, config, t.HostName(0))
		before := config.Status.Boot.CredentialID
		old := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Machine(ctx, config).Spec.InfrastructureRef.Name}}
		patched(ctx, hostAt(t, t.HostName(0)), func(h *bmov1alpha1.BareMetalHost) {
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, "capm3.metal3.io/unhealthy", "")
		})
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(old), old)).To(Succeed())
		anew := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, OwnerReferences: old.OwnerReferences}, Spec: old.Spec}
		anew.Spec.ProviderID = ""
		Expect(lab.ManagementClient.Delete(ctx, old)).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(old), old))
		}).Should(BeTrue())
		Eventually(ctx, func() []string { return liveCredentials(ctx, config) }).ShouldNot(ContainElement(before))
		t.AddHost(ctx, t.HostName(1))
		t.Create(ctx, anew)
		Eventually(ctx, func(ctx context.Context) (string, error) {
			_, err := t.Condition(config, bootstrapv1.BootPreparedCondition)(ctx)
			if !config.Status.HostRef.IsDefined() {
				return "", err
			}
			return config.Status.HostRef.Name, err
		}).Should(Equal(t.HostName(1)))
		expectOn(ctx, t, config, t.HostName(1))
	})

	It("keeps for the next Machine, by node reuse, has a token, a Node and a credential of the new one, under the same name", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, NodeReuse: true,
			Config: func(spec *bootstrapv1.BootSpec) { spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }})
		first := t.Config(ctx, "infra")
		asking(ctx, t, first)
		pointer, node := t.Pointer(ctx, first), t.Node(ctx, first)
		Expect(node.Name).To(Equal(t.HostName(0)))

		By("leaving nothing while the host is kept and no Machine has it")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 0)
		bmh := hostAt(t, t.HostName(0))
		Eventually(ctx, func(ctx context.Context) (*corev1.ObjectReference, error) {
			return bmh.Spec.ConsumerRef, lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
		}).Should(HaveField("Kind", "Cluster"))
		Expect(bmh.Labels).To(HaveKeyWithValue("infrastructure.cluster.x-k8s.io/node-reuse", "md-infra"))
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, "infra") }).Should(BeEmpty())
		Expect(liveCredentials(ctx, first)).To(BeEmpty())
		Expect(apierrors.IsNotFound(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}))).To(BeTrue())

		By("booting there again, although other hosts are free")
		for i := range 3 {
			t.AddHost(ctx, t.HostName(i+1))
		}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 1)
		second := t.Config(ctx, "infra")
		Expect(second.UID).NotTo(Equal(first.UID))
		asking(ctx, t, second)
		expectOn(ctx, t, second, t.HostName(0))
		again := t.Node(ctx, second)
		Expect(again.Name).To(Equal(node.Name))
		Expect(again.UID).NotTo(Equal(node.UID))
		Expect(again.Annotations).To(HaveKeyWithValue(poolv1.NodeConfigAnnotation, t.Namespace+"/"+second.Name))
		Expect(t.Pointer(ctx, second).Token).NotTo(Equal(pointer.Token))
		Expect(liveCredentials(ctx, first)).To(BeEmpty())
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
		for key := range bmh.Annotations {
			Expect(key).NotTo(ContainSubstring(poolv1.GroupVersion.Group))
		}
		old := pointer
		Eventually(ctx, func() (int, error) { code, _, err := get(ctx, old, old.URL); return code, err }).Should(Equal(503), "no machine has that token any more")
	})

	It("reads the user data for, at whatever moment, has the one pointer: it stands before anybody is told, is never written again, and can be restored", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		watch, err := lab.ManagementClient.Watch(ctx, &bootstrapv1.PoolbootConfigList{}, client.InNamespace(t.Namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watch.Stop)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		secret := &corev1.Secret{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed(), "Metal3 falls back to this name")
		made, err := strconv.ParseUint(secret.ResourceVersion, 10, 64) // one row of numbers for all kinds, in etcd
		Expect(err).NotTo(HaveOccurred())
		var seen *bootstrapv1.PoolbootConfig
		Eventually(ctx, watch.ResultChan()).Should(Receive(HaveField("Object", Satisfy(func(o *bootstrapv1.PoolbootConfig) bool {
			seen = o
			return o.Status.DataSecretName != "" || ptr.Deref(o.Status.Initialization.DataSecretCreated, false) || conditions.IsTrue(o, clusterv1.ReadyCondition)
		}))))
		Expect(strconv.ParseUint(seen.ResourceVersion, 10, 64)).To(BeNumerically(">", made), "the first word of it comes after it")

		By("making no other one while it is not there, for Metal3 may have read it, and telling that it is not")
		Expect(lab.ManagementClient.Delete(ctx, secret.DeepCopy())).To(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.DataSecretAvailableCondition)).Should(And(HavePrefix("False DataSecretFailed"), ContainSubstring("restore it")))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False DataSecretFailed"), "Metal3 takes no host for it then")
		Expect(lab.Manager.Kill()).To(Succeed())
		Expect(lab.Manager.Start(context.WithoutCancel(ctx))).To(Succeed())
		Consistently(ctx, func() error {
			return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), &corev1.Secret{})
		}).
			Should(Satisfy(apierrors.IsNotFound))

		By("booting with the one that is put back")
		restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Labels: secret.Labels, OwnerReferences: secret.OwnerReferences}, Type: secret.Type, Data: secret.Data}
		t.Create(ctx, restored)
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		t.AddHosts(ctx, 1)
		asking(ctx, t, config)
		expectOn(ctx, t, config, t.HostName(0))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(restored), secret)).To(Succeed())
		Expect(secret.Data).To(Equal(restored.Data))
		Expect(secret.ManagedFields).To(HaveEach(HaveField("Manager", restored.ManagedFields[0].Manager)), "Metal3 put its label on it, Poolboot wrote nothing")
	})

	It("has chosen is the only one that counts, whatever else says that it serves the Machine", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		config, _ := booting(ctx, t, nil)
		expectOn(ctx, t, config, t.HostName(0))
		t.AddHost(ctx, t.HostName(1))
		chosen := hostAt(t, t.HostName(0))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(chosen), chosen)).To(Succeed())
		node := t.Node(ctx, config)
		patched(ctx, hostAt(t, t.HostName(1)), func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = chosen.Spec.ConsumerRef })
		Consistently(ctx, func(g Gomega) {
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			g.Expect(config.Status.HostRef.Name).To(Equal(t.HostName(0)))
			g.Expect(t.Node(ctx, config).UID).To(Equal(node.UID))
		}).WithTimeout(2 * time.Second).Should(Succeed())
		expectOn(ctx, t, config, t.HostName(0))
	})
})
