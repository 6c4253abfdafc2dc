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

// annotatedHost is a BareMetalHost without a Machine that asks for a pool by annotation.
type annotatedHost struct {
	*tenant.Tenant
	name string
}

// newAnnotatedHost creates an annotated BareMetalHost for the pool infra. The pool takes hosts without a Machine by a
// template, and derives a label from the host's rack.
func newAnnotatedHost(ctx context.Context, changes ...func(*bmov1alpha1.BareMetalHost)) *annotatedHost {
	GinkgoHelper()
	a := &annotatedHost{Tenant: tenant.New(ctx, lab, 0, func(pool *poolv1.MachineConfigPool) {
		pool.Spec.Hosts.TemplateRef.Name = "hosts"
		pool.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/rack", ValueExpression: "host.labels.rack"}}
	})}
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	a.name = a.HostName(0)
	host := &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.name, Labels: map[string]string{"rack": "r7"},
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

func (a *annotatedHost) objectMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: a.Namespace, Name: a.name}
}

// getHost reads the BareMetalHost.
func (a *annotatedHost) getHost(ctx context.Context) (*bmov1alpha1.BareMetalHost, error) {
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: a.objectMeta()}
	return host, lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(host), host)
}

// getRecord reads the host's PoolbootConfig. Its UID is empty if it does not exist.
func (a *annotatedHost) getRecord(ctx context.Context) (*bootstrapv1.PoolbootConfig, error) {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: a.objectMeta()}
	return config, client.IgnoreNotFound(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config))
}

// patchHost changes the BareMetalHost as a user does.
func (a *annotatedHost) patchHost(ctx context.Context, change func(*bmov1alpha1.BareMetalHost)) {
	GinkgoHelper()
	host, err := a.getHost(ctx)
	Expect(err).NotTo(HaveOccurred())
	before := host.DeepCopy()
	change(host)
	Expect(lab.ManagementClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
}

// getUserDataName returns the name of the Secret in the BareMetalHost's user data.
func (a *annotatedHost) getUserDataName(ctx context.Context) (string, error) {
	host, err := a.getHost(ctx)
	if err != nil || host.Spec.UserData == nil {
		return "", err
	}
	return host.Spec.UserData.Name, nil
}

// boot sets the host's image when its user data is set, waits for the host's configuration, and returns the record and
// the Node.
func (a *annotatedHost) boot(ctx context.Context) (*bootstrapv1.PoolbootConfig, *corev1.Node) {
	GinkgoHelper()
	Eventually(ctx, a.getUserDataName).Should(Equal(a.name))
	Eventually(ctx, func() (bmov1alpha1.ProvisioningState, error) {
		host, err := a.getHost(ctx)
		return host.Status.Provisioning.State, err
	}).Should(Equal(bmov1alpha1.StateAvailable), "only an available host is provisioned again")
	a.patchHost(ctx, setImage)
	record := &bootstrapv1.PoolbootConfig{ObjectMeta: a.objectMeta()}
	waitForConfiguration(ctx, a.Tenant, record)
	return record, a.Node(ctx, record)
}

// expectCleanedUp waits until a record, its Node and its overlay are deleted.
func (a *annotatedHost) expectCleanedUp(ctx context.Context, record *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (any, error) { record, err := a.getRecord(ctx); return record.UID, err }).ShouldNot(Equal(record.UID))
	Eventually(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: a.name}, &corev1.Node{}) }).Should(Satisfy(apierrors.IsNotFound))
	overlay := client.ObjectKey{Namespace: "poolboot-system", Name: bootstrapv1.OverlayNamePrefix + string(record.UID)}
	Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, overlay, &corev1.Secret{}) }).Should(Satisfy(apierrors.IsNotFound))
}

func setImage(h *bmov1alpha1.BareMetalHost) {
	h.Spec.Image = &bmov1alpha1.Image{URL: site.KubeletImageURL}
}

func setPoolAnnotation(role string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) {
		if delete(h.Annotations, poolv1.HostPoolAnnotation); role != "" {
			h.Annotations[poolv1.HostPoolAnnotation] = role
		}
	}
}

var _ = Describe("A BareMetalHost with the annotation of a pool", func() {
	It("gets the configuration of a Machine of the pool, after its Node is pre-registered in the pool", func(ctx SpecContext) {
		a := newAnnotatedHost(ctx)
		record, node := a.boot(ctx)
		key := client.ObjectKeyFromObject(record)
		Expect(hosts.get(key).readFile("/etc/workertest")).To(Equal("worker"))
		Expect(hosts.get(key).readFile("/etc/infratest")).To(Equal("infra"))
		bmh, err := a.getHost(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(node.Name).To(Equal(a.name))
		Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
			HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, string(bmh.UID)), HaveKeyWithValue("example.com/rack", "r7")))
		Expect(node.Spec.ProviderID).To(BeEmpty())
		Expect(listTaintKeys(node.Spec.Taints)).To(And(ContainElement(poolv1.NodeUnassignedTaint), Not(ContainElement(clusterv1.NodeUninitializedTaint.Key))))
		Expect(record.OwnerReferences).To(ConsistOf(HaveField("UID", bmh.UID)))
		Eventually(ctx, a.Condition(record, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Eventually(ctx, a.Condition(record, bootstrapv1.UserDataSetCondition)).Should(HavePrefix("True"))
		Eventually(ctx, listEvents(ctx, a.Namespace, "BareMetalHost", a.name, poolv1.EventPoolbootConfigCreated)).Should(HaveLen(1))

		By("keeping its pool when the annotation changes after the Node was pre-registered")
		a.patchHost(ctx, setPoolAnnotation("worker"))
		Eventually(ctx, listEvents(ctx, a.Namespace, "BareMetalHost", a.name, poolv1.EventPoolFixed)).Should(ConsistOf(ContainSubstring("change the Node's labels")))
		a.patchHost(ctx, setPoolAnnotation("infra"))

		By("cleaning up when it is deprovisioned before it joined, and booting again")
		a.patchHost(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = nil })
		a.expectCleanedUp(ctx, record)
		Eventually(ctx, func() (string, error) { record, err := a.getRecord(ctx); return record.Status.DataSecretName, err }).Should(Equal(a.name))
		again, second := a.boot(ctx)
		Expect(again.UID).NotTo(Equal(record.UID))
		Expect(second.UID).NotTo(Equal(node.UID))

		By("cleaning up, and removing the user data, when the annotation is removed")
		a.patchHost(ctx, setPoolAnnotation(""))
		a.expectCleanedUp(ctx, again)
		Eventually(ctx, a.getUserDataName).Should(BeEmpty())
	})

	It("boots into the pool of the latest annotation", func(ctx SpecContext) {
		a := newAnnotatedHost(ctx)
		Eventually(ctx, a.getUserDataName).Should(Equal(a.name))
		before, err := a.getRecord(ctx)
		Expect(err).NotTo(HaveOccurred())
		a.patchHost(ctx, setPoolAnnotation("worker"))
		Eventually(ctx, func() (string, error) { record, err := a.getRecord(ctx); return record.Status.PoolRole, err }).Should(Equal("worker"))
		record, node := a.boot(ctx)
		Expect(record.UID).To(Equal(before.UID))
		Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "worker"))
		_, err = hosts.get(client.ObjectKeyFromObject(record)).readFile("/etc/infratest")
		Expect(err).To(HaveOccurred())

		By("cleaning up when it is deleted")
		host, err := a.getHost(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(lab.ManagementClient.Delete(ctx, host)).To(Succeed())
		a.expectCleanedUp(ctx, record)
	})

	It("gives up its own record when a Machine takes it, and boots for the Machine", func(ctx SpecContext) {
		a := newAnnotatedHost(ctx)
		Eventually(ctx, a.getUserDataName).Should(Equal(a.name))
		a.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := a.Config(ctx, "infra")
		waitForConfiguration(ctx, a.Tenant, config)
		Eventually(ctx, func() (any, error) { record, err := a.getRecord(ctx); return record.UID, err }).Should(BeEmpty())
		Expect(a.getUserDataName(ctx)).To(Equal(config.Name))
		Eventually(ctx, listEvents(ctx, a.Namespace, "BareMetalHost", a.name, poolv1.EventPoolbootConfigDeleted)).Should(ConsistOf(ContainSubstring("is the consumer of the host")))
	})

	It("keeps user data that a user set, and reports it", func(ctx SpecContext) {
		a := newAnnotatedHost(ctx, func(h *bmov1alpha1.BareMetalHost) {
			h.Spec.UserData = &corev1.SecretReference{Name: "mine"}
			Expect(lab.ManagementClient.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "mine"}})).To(Succeed())
		})
		record := &bootstrapv1.PoolbootConfig{ObjectMeta: a.objectMeta()}
		Eventually(ctx, a.Condition(record, clusterv1.ReadyCondition)).Should(HavePrefix("False " + bootstrapv1.UserDataTakenReason))
		Eventually(ctx, listEvents(ctx, a.Namespace, "BareMetalHost", a.name, bootstrapv1.UserDataTakenReason)).Should(HaveLen(1))
		Expect(a.getUserDataName(ctx)).To(Equal("mine"))
	})
})
