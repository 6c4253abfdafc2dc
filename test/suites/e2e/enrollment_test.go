package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A host without a Machine", func() {
	It("boots into its pool with an enrollment token: each version of its Node is in the pool", func(ctx SpecContext) {
		t := newTenantTakingHosts(ctx)
		name := t.Namespace + "-7"
		secret, enrollment := t.Enrollment("edge", 1)
		token := secret.StringData[poolv1.EnrollmentTokenKey]
		t.Create(ctx, secret)
		t.Create(ctx, enrollment)
		Eventually(ctx, func(ctx context.Context) (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(enrollment), enrollment)
			return enrollment.Status.URL, client.IgnoreNotFound(err)
		}).ShouldNot(BeEmpty())
		userData, err := ignition.Pointer{URL: enrollment.Status.URL + "?name=" + name, Token: token, CA: []byte(enrollment.Status.CertificateAuthority)}.Marshal()
		Expect(err).NotTo(HaveOccurred())
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())

		server, err := lab.Hardware.Boot(name, userData)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.PowerCut)

		expectWorkingNode(ctx, t, name, server, history)
	})

	It("boots into its pool by the annotation on its BareMetalHost: each version of its Node is in the pool", func(ctx SpecContext) {
		t := newTenantTakingHosts(ctx)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		bmh := t.BootAnnotatedHost(ctx, t.HostName(0), "infra")
		Eventually(func() *baremetal.Host { return lab.Hardware.Host(bmh.Name) }).WithContext(ctx).ShouldNot(BeNil(), "the host is on")
		node := expectWorkingNode(ctx, t, bmh.Name, lab.Hardware.Host(bmh.Name), history)
		Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, string(bmh.UID)))
		Expect(node.Spec.ProviderID).To(BeEmpty(), "a provider ID of Metal3 names a Metal3Machine")
	})
})

// newTenantTakingHosts returns a tenant whose pool infra takes hosts without a Machine.
func newTenantTakingHosts(ctx context.Context) *tenant.Tenant {
	GinkgoHelper()
	t := tenant.New(ctx, lab, 0, tenant.TakeHosts)
	t.CreateHostTemplate(ctx, nil)
	return t
}

// expectWorkingNode waits until the Node of a host without a Machine is Ready in the pool infra and the host's token is
// revoked. It expects each version of the Node since the start of history to be in the pool.
func expectWorkingNode(ctx context.Context, t *tenant.Tenant, name string, server *baremetal.Host, history *site.NodeHistory) *corev1.Node {
	GinkgoHelper()
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace}}
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
	Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).
		ShouldNot(ContainElement(Or(HaveField("Key", poolv1.NodeUnassignedTaint), HaveField("Key", clusterv1.NodeUninitializedTaint.Key))))
	Eventually(ctx, server.Joined).Should(BeTrue(), "the sentinel file")
	verdict := site.Judge(listVersions(ctx, history, name), "infra", t.Pools(ctx))
	Expect(verdict.Versions).To(BeNumerically(">", 1))
	Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	Expect(server.ReadFile("/etc/infratest")).To(BeEquivalentTo("infra"))

	By("waiting for its token to be revoked")
	Eventually(ctx, func(ctx context.Context) (string, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
		return config.Annotations[bootstrapv1.TokenStateAnnotation] + config.Status.Boot.CredentialID, err
	}).Should(BeEquivalentTo(bootstrapv1.TokenStateRevoked))
	Expect(listOverlays(ctx, config)).To(BeEmpty())
	return t.Node(ctx, config)
}
