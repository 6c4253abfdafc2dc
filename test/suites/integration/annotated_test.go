package integration

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// annotated is a BareMetalHost that no Machine uses and that asks for a pool.
type annotated struct {
	*tenant.Tenant
	name string
}

// newAnnotated adds one that asks for the pool infra, in which hosts without a Machine get what the template says and a
// label of the host's rack.
func newAnnotated(ctx context.Context, changes ...func(*bmov1alpha1.BareMetalHost)) *annotated {
	GinkgoHelper()
	a := &annotated{Tenant: tenant.New(ctx, lab, 0, func(pool *poolv1.MachineConfigPool) {
		pool.Spec.HostTemplateRef.Name = "hosts"
		pool.Spec.NodeLabelRules = []nodev1.NodeLabelRule{{Key: "example.com/rack", ValueExpression: "host.labels.rack"}}
	})}
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	a.name = a.HostName(0)
	host := &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Name: a.name, Labels: map[string]string{"rack": "r7"},
			Annotations: map[string]string{poolv1.HostPoolAnnotation: "infra", poolv1.HostClusterAnnotation: a.Namespace}},
		Spec: bmov1alpha1.BareMetalHostSpec{Online: true, BootMACAddress: "52:54:00:00:00:01",
			BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
	}
	for _, change := range changes {
		change(host)
	}
	a.Create(ctx, template, host)
	return a
}

func (a *annotated) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: a.Namespace, Name: a.name}
}

// host reads the BareMetalHost afresh, record its PoolbootConfig; the record's UID is empty when there is none.
func (a *annotated) host(ctx context.Context) (*bmov1alpha1.BareMetalHost, error) {
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: a.meta()}
	return host, lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(host), host)
}

func (a *annotated) record(ctx context.Context) (*bootstrapv1.PoolbootConfig, error) {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: a.meta()}
	return config, client.IgnoreNotFound(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config))
}

// change changes the BareMetalHost as a person does.
func (a *annotated) change(ctx context.Context, change func(*bmov1alpha1.BareMetalHost)) {
	GinkgoHelper()
	host, err := a.host(ctx)
	Expect(err).NotTo(HaveOccurred())
	before := host.DeepCopy()
	change(host)
	Expect(lab.ManagementClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
}

// userData is the name of the Secret in the BareMetalHost's user data.
func (a *annotated) userData(ctx context.Context) (string, error) {
	host, err := a.host(ctx)
	if err != nil || host.Spec.UserData == nil {
		return "", err
	}
	return host.Spec.UserData.Name, nil
}

// boots installs an image once the user data stands, and returns the record and the Node.
func (a *annotated) boots(ctx context.Context) (*bootstrapv1.PoolbootConfig, *corev1.Node) {
	GinkgoHelper()
	Eventually(ctx, a.userData).Should(Equal(a.name))
	Eventually(ctx, func() (bmov1alpha1.ProvisioningState, error) {
		host, err := a.host(ctx)
		return host.Status.Provisioning.State, err
	}).Should(Equal(bmov1alpha1.StateAvailable), "else it would not be provisioned anew")
	a.change(ctx, installed)
	record := &bootstrapv1.PoolbootConfig{ObjectMeta: a.meta()}
	asking(ctx, a.Tenant, record)
	return record, a.Node(ctx, record)
}

// withdrawn waits until a record is gone, and with it the Node and the overlay that were made for it.
func (a *annotated) withdrawn(ctx context.Context, record *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (any, error) { is, err := a.record(ctx); return is.UID, err }).ShouldNot(Equal(record.UID))
	Eventually(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: a.name}, &corev1.Node{}) }).Should(Satisfy(apierrors.IsNotFound))
	overlay := client.ObjectKey{Namespace: "poolboot-system", Name: bootstrapv1.OverlayNamePrefix + string(record.UID)}
	Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, overlay, &corev1.Secret{}) }).Should(Satisfy(apierrors.IsNotFound))
}

func installed(h *bmov1alpha1.BareMetalHost) {
	h.Spec.Image = &bmov1alpha1.Image{URL: site.KubeletImageURL}
}

func asksFor(role string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) {
		if delete(h.Annotations, poolv1.HostPoolAnnotation); role != "" {
			h.Annotations[poolv1.HostPoolAnnotation] = role
		}
	}
}

var _ = Describe("A BareMetalHost with the annotation of a pool", func() {
	It("gets what a Machine of the pool gets, and its Node stands in the pool before that", func(ctx SpecContext) {
		a := newAnnotated(ctx)
		record, node := a.boots(ctx)
		key := client.ObjectKeyFromObject(record)
		Expect(hosts.of(key).file("/etc/workertest")).To(Equal("worker"))
		Expect(hosts.of(key).file("/etc/infratest")).To(Equal("infra"))
		bmh, err := a.host(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(node.Name).To(Equal(a.name))
		Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
			HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, string(bmh.UID)), HaveKeyWithValue("example.com/rack", "r7")))
		Expect(node.Spec.ProviderID).To(BeEmpty())
		Expect(names(node.Spec.Taints)).To(And(ContainElement(poolv1.NodeUnassignedTaint), Not(ContainElement(clusterv1.NodeUninitializedTaint.Key))))
		Expect(record.OwnerReferences).To(ConsistOf(HaveField("UID", bmh.UID)))
		Eventually(ctx, a.Condition(record, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Eventually(ctx, a.Condition(record, bootstrapv1.UserDataSetCondition)).Should(HavePrefix("True"))
		Eventually(ctx, told(ctx, a.Namespace, "BareMetalHost", a.name, poolv1.EventPoolbootConfigCreated)).Should(HaveLen(1))

		By("keeping its pool once its Node stands, whatever the annotation says then")
		a.change(ctx, asksFor("worker"))
		Eventually(ctx, told(ctx, a.Namespace, "BareMetalHost", a.name, poolv1.EventPoolFixed)).Should(ConsistOf(ContainSubstring("change the Node's labels")))
		a.change(ctx, asksFor("infra"))

		By("leaving nothing behind when it is deprovisioned before it joined, and booting again")
		a.change(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = nil })
		a.withdrawn(ctx, record)
		Eventually(ctx, func() (string, error) { is, err := a.record(ctx); return is.Status.DataSecretName, err }).Should(Equal(a.name))
		again, second := a.boots(ctx)
		Expect(again.UID).NotTo(Equal(record.UID))
		Expect(second.UID).NotTo(Equal(node.UID))

		By("leaving nothing behind, and no user data, when it asks no more")
		a.change(ctx, asksFor(""))
		a.withdrawn(ctx, again)
		Eventually(ctx, a.userData).Should(BeEmpty())
	})

	It("boots into the pool that it asks for last", func(ctx SpecContext) {
		a := newAnnotated(ctx)
		Eventually(ctx, a.userData).Should(Equal(a.name))
		before, err := a.record(ctx)
		Expect(err).NotTo(HaveOccurred())
		a.change(ctx, asksFor("worker"))
		Eventually(ctx, func() (string, error) { is, err := a.record(ctx); return is.Status.PoolRole, err }).Should(Equal("worker"))
		record, node := a.boots(ctx)
		Expect(record.UID).To(Equal(before.UID))
		Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "worker"))
		_, err = hosts.of(client.ObjectKeyFromObject(record)).file("/etc/infratest")
		Expect(err).To(HaveOccurred())

		By("leaving nothing behind when it is deleted")
		host, err := a.host(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(lab.ManagementClient.Delete(ctx, host)).To(Succeed())
		a.withdrawn(ctx, record)
	})

	It("is a Machine's once one takes it: the record steps back, and the Machine boots it", func(ctx SpecContext) {
		a := newAnnotated(ctx)
		Eventually(ctx, a.userData).Should(Equal(a.name))
		a.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := a.Config(ctx, "infra")
		asking(ctx, a.Tenant, config)
		Eventually(ctx, func() (any, error) { is, err := a.record(ctx); return is.UID, err }).Should(BeEmpty())
		Expect(a.userData(ctx)).To(Equal(config.Name))
		Eventually(ctx, told(ctx, a.Namespace, "BareMetalHost", a.name, poolv1.EventPoolbootConfigDeleted)).Should(ConsistOf(ContainSubstring("has taken the host")))
	})

	It("keeps user data that a person gave it, and says so", func(ctx SpecContext) {
		a := newAnnotated(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = &corev1.SecretReference{Name: "mine"} })
		record := &bootstrapv1.PoolbootConfig{ObjectMeta: a.meta()}
		Eventually(ctx, a.Condition(record, clusterv1.ReadyCondition)).Should(HavePrefix("False " + bootstrapv1.UserDataTakenReason))
		Eventually(ctx, told(ctx, a.Namespace, "BareMetalHost", a.name, bootstrapv1.UserDataTakenReason)).Should(HaveLen(1))
		Expect(a.userData(ctx)).To(Equal("mine"))
	})
})
